// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster/pki"
)

// ownersEnv has a data directory with the space solar, whose owners' Secrets are in a namespace of a host.
type ownersEnv struct {
	*Owners
	clock   *clocktesting.FakePassiveClock
	secrets corev1client.SecretInterface
	server  string
}

func newOwnersEnv(t *testing.T, secrets corev1client.SecretInterface, namespace string) *ownersEnv {
	t.Helper()
	e := &ownersEnv{secrets: secrets, clock: clocktesting.NewFakePassiveClock(time.Now()), server: "https://a/spaces/solar"}
	dir := t.TempDir()
	if _, err := pki.OpenCA(ClientKeys(dir, "solar"), pki.SpaceCA("solar")); err != nil {
		t.Fatal(err)
	}
	e.restart(dir, namespace)
	return e
}

// restart forgets all that is only in memory.
func (e *ownersEnv) restart(dir, namespace string) {
	e.Owners = &Owners{
		secrets: &Secrets{namespace: namespace, platform: "berth", client: e.secrets}, dataDir: dir, clock: e.clock, done: map[string]publishedOwners{},
	}
}

func stateOf(owners ...v1alpha1.Owner) *access.State {
	return &access.State{Space: "solar", Access: v1alpha1.Access{Owners: owners}}
}

func (e *ownersEnv) publish(t *testing.T, state *access.State) {
	t.Helper()
	if _, err := e.Publish(t.Context(), "solar", state, e.server, []byte("CA")); err != nil {
		t.Fatal(err)
	}
	if e.Due("solar", state) {
		t.Error("it is due at once again")
	}
}

// published returns the Secrets of owners, by the names of the owners.
func (e *ownersEnv) published(t *testing.T) map[string]corev1.Secret {
	t.Helper()
	list, err := e.secrets.List(t.Context(), metav1.ListOptions{LabelSelector: labelKubeconfig + "=solar," + labelOwnerKind})
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]corev1.Secret{}
	for _, s := range list.Items {
		by[s.Labels[labelOwnerKind]+" "+s.Annotations[annotationOwner]] = s
	}
	return by
}

// testOwners is a part of [TestASecretOfSomebodyElsesIsLeftAloneWithoutBeingRead], which has a host. X2, O1: each owner has a kubeconfig
// in a Secret, which is renewed, and goes with the owner, whatever happens in between.
func testOwners(t *testing.T, secrets corev1client.SecretInterface, namespace string) {
	alice, bob := v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "alice@example.com"}, v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "bob"}
	devs := v1alpha1.Owner{Kind: v1alpha1.GroupKind, Name: "bob"} // of the same name
	robot := v1alpha1.Owner{Kind: v1alpha1.ServiceAccountKind, Name: "system:serviceaccount:a:b"}
	e := newOwnersEnv(t, secrets, namespace)
	state := stateOf(alice, bob, devs, robot)
	if !e.Due("solar", state) {
		t.Error("nothing is due at the start")
	}
	e.publish(t, state)
	first := e.published(t)
	if len(first) != 3 {
		t.Fatalf("the Secrets are %v", first)
	}
	for owner, want := range map[string][]string{"User alice@example.com": {"alice@example.com", "berth.dev"}, "Group bob": {"berth:group:bob", "berth.dev", "bob"}} {
		s := first[owner]
		if s.Type != typeKubeconfig || s.Labels[translate.LabelPlatform] != "berth" || string(s.Data[kubeconfigKey]) != string(s.Data[valueKey]) {
			t.Errorf("the Secret of %s is %s with the labels %v", owner, s.Type, s.Labels)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(s.Data[kubeconfigKey])
		if err != nil {
			t.Fatal(err)
		}
		certs, err := certutil.ParseCertsPEM(config.CertData)
		if err != nil {
			t.Fatal(err)
		}
		if got := append([]string{certs[0].Subject.CommonName}, slices.Sorted(slices.Values(certs[0].Subject.Organization))...); !slices.Equal(got, want) || config.Host != e.server {
			t.Errorf("%s is %v at %s", owner, got, config.Host)
		}
		if life := time.Until(certs[0].NotAfter); life > ownerTTL || life < ownerTTL-time.Minute {
			t.Errorf("%s has it for %s", owner, life)
		}
	}

	t.Run("nothing is written before it is due", func(t *testing.T) {
		e.restart(e.dataDir, namespace)
		e.publish(t, state)
		if now := e.published(t); now["User bob"].ResourceVersion != first["User bob"].ResourceVersion {
			t.Error("a restart writes it again")
		}
	})
	t.Run("it is renewed well before it expires", func(t *testing.T) {
		e.clock.SetTime(e.clock.Now().Add(ownerTTL/2 + time.Second))
		if !e.Due("solar", state) {
			t.Error("it is not due after half of its life")
		}
		e.publish(t, state)
		if now := e.published(t); now["User bob"].UID != first["User bob"].UID || now["User bob"].ResourceVersion == first["User bob"].ResourceVersion {
			t.Error("it is not written")
		}
		before := e.published(t)
		e.server = "https://b/spaces/solar"
		e.Forget("solar")
		e.publish(t, state)
		if now := e.published(t); now["User bob"].ResourceVersion == before["User bob"].ResourceVersion || !strings.Contains(string(now["User bob"].Data["value"]), e.server) {
			t.Error("it leads to where the space was before")
		}
	})
	t.Run("an owner's Secret goes with the owner", func(t *testing.T) {
		e.publish(t, stateOf(alice, devs))
		if now := e.published(t); len(now) != 2 || now["User bob"].Name != "" {
			t.Errorf("the Secrets are %v", now)
		}
	})
	t.Run("also after a crash in between", func(t *testing.T) {
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := e.Publish(ended, "solar", stateOf(bob), e.server, []byte("CA")); err == nil {
			t.Error("without a host, it succeeds")
		}
		e.restart(e.dataDir, namespace)
		if record, err := readOwners(e.dataDir, "solar", namespace); err != nil || len(record.Secrets) != 3 {
			t.Errorf("recorded are %v (%v)", record, err)
		}
		e.publish(t, stateOf(bob))
		if now := e.published(t); len(now) != 1 || now["User bob"].Name == "" {
			t.Errorf("the Secrets are %v", now)
		}
	})
	t.Run("somebody else's of that name stays", func(t *testing.T) {
		name := ownerSecretName("solar", v1alpha1.Subject{Kind: v1alpha1.UserKind, Name: "eve"})
		made, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"a": []byte("b")}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Publish(t.Context(), "solar", stateOf(bob, v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "eve"}), e.server, nil); err == nil || !strings.Contains(err.Error(), "has another owner") {
			t.Errorf("writing it: %v", err)
		}
		e.publish(t, stateOf(bob))
		if now, err := secrets.Get(t.Context(), name, metav1.GetOptions{}); err != nil || now.UID != made.UID || now.ResourceVersion != made.ResourceVersion {
			t.Errorf("it was changed, or deleted (%v)", err)
		}
	})
	t.Run("all go with the space", func(t *testing.T) {
		e.publish(t, stateOf(alice, bob, devs))
		e.restart(e.dataDir, namespace)
		for range 2 { // it is repeatable
			if err := e.Remove(t.Context(), "solar"); err != nil {
				t.Fatal(err)
			}
		}
		if now := e.published(t); len(now) > 0 {
			t.Errorf("left are %v", now)
		}
	})
	t.Run("a space without keys has none yet", func(t *testing.T) {
		if err := os.RemoveAll(datadir.Space(e.dataDir, "solar")); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Publish(t.Context(), "solar", state, e.server, nil); err != nil || !e.Due("solar", state) {
			t.Errorf("it is not tried again (%v)", err)
		}
	})
}

// Without a namespace for Secrets, there are none.
func TestNoOwnersArePublishedWithoutANamespace(t *testing.T) {
	var none *Owners
	state := stateOf(v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "alice"})
	_, err := none.Publish(t.Context(), "solar", state, "", nil)
	if err != nil || none.Due("solar", state) || none.Remove(t.Context(), "solar") != nil {
		t.Error("something is done")
	}
	none.Forget("solar")
}
