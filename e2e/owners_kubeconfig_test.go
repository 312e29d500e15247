// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// ownersAre changes the owners of a space; they are in YAML's flow style.
func ownersAre(t *testing.T, host *cluster, space, owners string) {
	t.Helper()
	patchSpace(t, host, space, "spec: {access: {owners: ["+owners+"]}}")
}

// ownerSecrets are the Secrets with the kubeconfigs of a space's owners, by kind and name of the owners.
func ownerSecrets(t *testing.T, host *cluster, namespace, space string) map[string]corev1.Secret {
	t.Helper()
	list := must(host.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "berth.dev/owner-kind,berth.dev/kubeconfig=" + space}))(t)
	secrets := map[string]corev1.Secret{}
	for _, s := range list.Items {
		secrets[s.Labels["berth.dev/owner-kind"]+" "+s.Annotations["berth.dev/owner"]] = s
	}
	return secrets
}

func awaitOwnerSecrets(t *testing.T, host *cluster, namespace, space string, want ...string) (secrets map[string]corev1.Secret) {
	t.Helper()
	slices.Sort(want)
	eventually(t, func() error {
		secrets = ownerSecrets(t, host, namespace, space)
		var have []string
		for owner := range secrets {
			have = append(have, owner)
		}
		slices.Sort(have)
		return expect("the owners with a Secret", strings.Join(have, ", "), strings.Join(want, ", "))
	})
	return secrets
}

// X2, O1: each owner's kubeconfig is in a Secret, which is there as long as the owner is one: in a space that sleeps, and after a crash of
// Berth in between, too. They go with the space.
func TestOwnersHaveKubeconfigsInSecrets(t *testing.T) {
	t.Parallel()
	up := sharedBerth(t)
	host, address := up.host(t), freeAddress(t)
	host.kubectl(t, "create", "namespace", "owners")
	b := newBerth(filepath.Join(t.TempDir(), "data"))
	t.Cleanup(b.end)
	serve := func() {
		b.process = spawn(t, "serve", "--data-dir", b.dir, "--listen", address, "--advertise", "https://"+address, "--host-kubeconfig", filepath.Join(up.dir, "host.kubeconfig"),
			"--platform-name", "owners", "--space", "owned", "--kubeconfig-secrets", "owners")
	}
	serve()
	await(t, host.CoreV1().Secrets("owners").Get, "owned-kubeconfig", there)
	ownersAre(t, host, "owned", "{kind: User, name: alice@example.com}, {kind: Group, name: devs}, {kind: ServiceAccount, name: 'system:serviceaccount:default:robot'}, {kind: Group, name: 'system:masters'}")
	secrets := awaitOwnerSecrets(t, host, "owners", "owned", "User alice@example.com", "Group devs")
	for owner, user := range map[string]string{"User alice@example.com": "alice@example.com", "Group devs": "berth:group:devs"} {
		secret := secrets[owner]
		if secret.Type != "berth.dev/kubeconfig" || len(secret.Data) != 2 || string(secret.Data["value"]) != string(secret.Data["kubeconfig"]) {
			t.Errorf("the Secret of %s is of type %s and has %d keys", owner, secret.Type, len(secret.Data))
		}
		path := filepath.Join(t.TempDir(), "owner.kubeconfig")
		if err := os.WriteFile(path, secret.Data["kubeconfig"], 0o600); err != nil {
			t.Fatal(err)
		}
		is := must(whoAmI(t, newCluster(t, path)))(t)
		if is.Username != user || !slices.Contains(is.Groups, "berth.dev") || slices.Contains(is.Groups, "devs") != (owner == "Group devs") {
			t.Errorf("%s is %s of %v", owner, is.Username, is.Groups)
		}
	}
	if name := secrets["User alice@example.com"].Name; !strings.HasPrefix(name, "owned-owner-alice-example-com---") {
		t.Errorf("the Secret is called %s", name)
	}

	var many []string
	for i := range 66 {
		many = append(many, fmt.Sprintf("{kind: User, name: user-%02d}", i))
	}
	ownersAre(t, host, "owned", strings.Join(many, ", "))
	eventually(t, func() error {
		return expect("the owners with a Secret", len(ownerSecrets(t, host, "owners", "owned")), 64)
	})
	if out := host.kubectl(t, "get", "events", "--field-selector", "involvedObject.name=owned,reason=OwnersLimited"); !strings.Contains(out, "2 owners have no kubeconfig in a Secret") {
		t.Errorf("that some have none is not told: %s", out)
	}

	b.command(t, "sleep", "owned")
	ownersAre(t, host, "owned", "{kind: Group, name: devs}, {kind: User, name: bob}")
	awaitOwnerSecrets(t, host, "owners", "owned", "Group devs", "User bob")
	if state, _ := b.stateOf(t, "owned"); state != "Asleep" {
		t.Errorf("a change of owners woke the space: it is %s", state)
	}

	b.crash(t)
	host.kubectl(t, "patch", "space", "owned", "--type", "merge", "--patch", "spec: {access: {owners: [{kind: User, name: carol}]}}")
	serve()
	awaitOwnerSecrets(t, host, "owners", "owned", "User carol")

	before := ownerSecrets(t, host, "owners", "owned")["User carol"]
	b.command(t, "rotate", "owned", "--ca")
	await(t, host.CoreV1().Secrets("owners").Get, before.Name, func(s *corev1.Secret) error {
		if string(s.Data["value"]) == string(before.Data["value"]) {
			return errors.New("the Secret has the certificate of the CA of before")
		}
		return nil
	})
	host.kubectl(t, "delete", "space", "owned", "--wait", "--timeout=120s")
	if left := ownerSecrets(t, host, "owners", "owned"); len(left) > 0 {
		t.Errorf("the space has left %v", left)
	}
	b.stop(t, syscall.SIGTERM)
}

// X2, O1: Berth issues a kubeconfig for an owner, and only for one. Once the owner is removed, it gets 401 and its watches end, whether the
// space shares a process or has its own, and also if it slept; that of another owner goes on.
func TestTheKubeconfigOfAFormerOwnerIsRevoked(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "shared", "--dedicated", "alone")
	host := b.host(t)
	for _, space := range []string{"shared", "alone"} {
		t.Run(space, func(t *testing.T) { checkRevocation(t, b, host, space) })
	}
	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"nobody":      {[]string{"--owner", "eve"}, []string{"--owner=eve", "no User of that name is an owner of space shared", "Group devs"}},
		"a group":     {[]string{"--owner", "devs"}, []string{"--owner=devs", "no User of that name"}},
		"an account":  {[]string{"--owner", "a", "--owner-kind", "ServiceAccount"}, []string{"--owner-kind=ServiceAccount", "kubectl create token"}},
		"no owner":    {[]string{"--owner-kind", "Group"}, []string{"--owner-kind needs --owner"}},
		"two of them": {[]string{"--owner", "devs", "--user", "eve"}, []string{"owner", "user"}},
	} {
		stdout, stderr, code := runBerth(t, append([]string{"kubeconfig", "shared", "--data-dir", b.dir}, c.args...)...)
		if err := complaint(stdout, stderr, code, c.says); err != nil {
			t.Errorf("%s: %v; it prints:\n%s%s", name, err, stdout, stderr)
		}
	}
}

func checkRevocation(t *testing.T, b *berth, host *cluster, space string) {
	b.awaitServed(t, space)
	ownersAre(t, host, space, "{kind: User, name: alice}, {kind: Group, name: devs}")
	alice, devs := b.issued(t, space, "--owner", "alice"), b.issued(t, space, "--owner", "devs", "--owner-kind", "Group")
	admin := b.space(t, space)
	for who, c := range map[string]*cluster{"alice": alice, "berth:group:devs": devs} {
		if is := must(whoAmI(t, c))(t); is.Username != who {
			t.Errorf("%s is %s of %v", who, is.Username, is.Groups)
		}
		eventually(t, func() error {
			_, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			return err
		})
	}
	lost := must(alice.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{}))(t)
	defer lost.Stop()
	kept := must(devs.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{}))(t)
	defer kept.Stop()

	ownersAre(t, host, space, "{kind: Group, name: devs}")
	revoked := func() error {
		if _, err := whoAmI(t, alice); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the kubeconfig of who was an owner gets %w", errors.Join(err, errors.New("want Unauthorized")))
		}
		return nil
	}
	eventually(t, revoked)
	eventually(t, func() error { return ended(lost.ResultChan()) })
	admin.kubectl(t, "create", "configmap", "after")
	awaitConfigMap(t, kept.ResultChan(), "after")
	kept.Stop()

	ownersAre(t, host, space, "{kind: Group, name: devs}, {kind: User, name: alice}") // again
	eventually(t, func() error { _, err := whoAmI(t, alice); return err })
	b.command(t, "sleep", space)
	ownersAre(t, host, space, "{kind: Group, name: devs}")
	eventually(t, revoked)
	must(whoAmI(t, devs))(t)
}

// ended is an error unless a watch has ended.
func ended(events <-chan watch.Event) error {
	for {
		select {
		case _, open := <-events:
			if !open {
				return nil
			}
		default:
			return errors.New("the watch goes on")
		}
	}
}
