// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// command runs a berth command on b's directory that has to succeed, and returns what it prints.
func (b *berth) command(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := runBerth(t, append(args, "--data-dir", b.dir)...)
	if code != 0 {
		t.Fatalf("berth %s ends with %d: %s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

// issued is a cluster by a kubeconfig that berth prints.
func (b *berth) issued(t *testing.T, args ...string) *cluster {
	t.Helper()
	path := filepath.Join(t.TempDir(), "issued.kubeconfig")
	if err := os.WriteFile(path, []byte(b.command(t, append([]string{"kubeconfig"}, args...)...)), 0o600); err != nil {
		t.Fatal(err)
	}
	return newCluster(t, path)
}

func whoAmI(t *testing.T, client kubernetes.Interface) (authenticationv1.UserInfo, error) {
	t.Helper()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

// X2: nothing that Berth issues is in system:masters; kubeconfigs live for a day, or as long as is asked for, for whom
// is asked; and RBAC says what each may do.
func TestKubeconfigsAreIssued(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo := b.demo(t)
	for name, c := range map[string]*cluster{"the space's": demo, "the host's": b.host(t)} {
		user := must(whoAmI(t, c))(t)
		if !slices.Contains(user.Groups, "berth:admins") || slices.Contains(user.Groups, "system:masters") {
			t.Errorf("%s admin is in %v", name, user.Groups)
		}
		must(c.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{Limit: 1}))(t)
		if left := remaining(t, must(os.ReadFile(c.kubeconfig))(t)); left > 24*time.Hour || left < 11*time.Hour {
			t.Errorf("%s kubeconfig is good for %s", name, left)
		}
	}
	path := filepath.Join(b.dir, "demo.kubeconfig")
	kept := string(must(os.ReadFile(path))(t))
	jane := b.issued(t, "demo", "--user", "jane", "--group", "issued-readers,others", "--ttl", "90m")
	user := must(whoAmI(t, jane))(t)
	if want := []string{"issued-readers", "others", "system:authenticated"}; user.Username != "jane" || !slices.Equal(slices.Sorted(slices.Values(user.Groups)), want) {
		t.Errorf("jane is %s of %v", user.Username, user.Groups)
	}
	if left := remaining(t, must(os.ReadFile(jane.kubeconfig))(t)); left > 90*time.Minute || left < 80*time.Minute {
		t.Errorf("jane's kubeconfig is good for %s", left)
	}
	ns := demo.namespace(t, "issued")
	if _, err := jane.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("without a binding, jane lists with %v", err)
	}
	demo.kubectl(t, "create", "rolebinding", "readers", "--clusterrole=view", "--group=issued-readers", "-n", ns)
	eventually(t, func() error {
		_, err := jane.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
		return err
	})
	if user := must(whoAmI(t, b.issued(t, "demo", "--user", "nobody")))(t); slices.Contains(user.Groups, "berth:admins") {
		t.Errorf("a user without a group is in %v", user.Groups)
	}
	if user := must(whoAmI(t, b.issued(t, "demo", "--ttl", "10m")))(t); user.Username != "admin" || !slices.Contains(user.Groups, "berth:admins") {
		t.Errorf("an admin for ten minutes is %s of %v", user.Username, user.Groups)
	}
	if now := string(must(os.ReadFile(path))(t)); now != kept {
		t.Error("issuing kubeconfigs changed the one that is kept")
	}
}

// X2: what can't be issued is refused with the flag, its value, and what to do.
func TestKubeconfigsThatAreTooMuchAreRefused(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"for a month":                 {[]string{"--ttl", "720h"}, []string{"--ttl=720h", "10m", "168h", "issue another one"}},
		"for a moment":                {[]string{"--ttl", "1m"}, []string{"--ttl=1m", "10m"}},
		"for no time":                 {[]string{"--ttl", "0s"}, []string{"--ttl=0s", "10m"}},
		"past RBAC":                   {[]string{"--group", "system:masters"}, []string{"--group=system:masters", "berth:admins"}},
		"as a part of Kubernetes":     {[]string{"--user", "system:kube-scheduler"}, []string{"--user=system:kube-scheduler", "Kubernetes reserves"}},
		"as nobody":                   {[]string{"--user", ""}, []string{"--user must not be empty"}},
		"in no group":                 {[]string{"--group", ""}, []string{"--group must not be empty"}},
		"as somebody with a long one": {[]string{"--user", strings.Repeat("x", 300)}, []string{"--user", "253"}},
	} {
		stdout, stderr, code := runBerth(t, append([]string{"kubeconfig", "demo", "--data-dir", b.dir}, c.args...)...)
		if err := complaint(stdout, stderr, code, c.says); err != nil {
			t.Errorf("%s: %v; it prints:\n%s%s", name, err, stdout, stderr)
		}
	}
}

// X2: keys are rotated while a space runs, sleeps, and while no berth runs. What was issued before is refused, pods run
// on, and get tokens of the new key while those of the old one are good.
func TestKeysAreRotatedWithoutLosingPods(t *testing.T) {
	t.Parallel()
	b := start(t)
	demo, host := b.demo(t), b.host(t)
	pod := demo.run(t, "default", newPod("stays"))
	hostPod := host.awaitRunning(t, hostNamespace, hostName("default", "stays"))
	token := podToken(t, host, hostNamespace, hostPod.Name)
	refused := func(when string, c *cluster) {
		t.Helper()
		if _, err := whoAmI(t, c); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: a kubeconfig of before gets %v, want Unauthorized", when, err)
		}
	}
	tokenIs := func(when, token string, want bool) {
		t.Helper()
		_, err := whoAmI(t, must(kubernetes.NewForConfig(withToken(demo.config, token)))(t))
		if want && err != nil || !want && !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: a pod's token gets %v", when, err)
		}
	}
	newToken := func(old string) (token string) {
		t.Helper()
		eventually(t, func() error {
			if token = podToken(t, host, hostNamespace, hostPod.Name); token == old {
				return fmt.Errorf("the pod has its old token")
			}
			return nil
		})
		return token
	}

	b.command(t, "rotate", "demo", "--ca", "--service-account-key")
	refused("awake", demo)
	demo = b.demo(t)
	must(whoAmI(t, demo))(t)
	second := newToken(token)
	tokenIs("within the overlap, the first", token, true)
	tokenIs("within the overlap, the second", second, true)

	b.command(t, "rotate", "demo", "--service-account-key", "--overlap=0s")
	tokenIs("without an overlap, the first", token, false)
	tokenIs("without an overlap, the second", second, false)
	must(whoAmI(t, demo))(t) // certificates are as they were
	third := newToken(second)
	tokenIs("without an overlap, the third", third, true)

	b.command(t, "sleep", "demo")
	b.command(t, "rotate", "demo", "--ca")
	refused("asleep", demo)
	if state, _ := b.stateOf(t, "demo"); state != "Asleep" {
		t.Errorf("a rotation, or who was revoked by it, woke the space: it is %s", state)
	}
	demo = b.demo(t)
	must(whoAmI(t, demo))(t)

	b.stop(t, os.Interrupt)
	b.command(t, "rotate", "demo", "--ca", "--service-account-key")
	offline := demo
	b.up(t)
	offline.config.Host = b.demo(t).config.Host // it has another port now
	refused("after a rotation while no berth ran", &cluster{Interface: must(kubernetes.NewForConfig(offline.config))(t)})
	demo, host = b.demo(t), b.host(t)
	must(whoAmI(t, demo))(t)
	tokenIs("after a start, the third", third, true)
	newToken(third)

	if now := demo.awaitRunning(t, "default", "stays"); now.UID != pod.UID {
		t.Error("the pod is another one")
	}
	if now := host.awaitRunning(t, hostNamespace, hostPod.Name); now.UID != hostPod.UID || restarts(now) != restarts(hostPod) {
		t.Error("the host pod is another one, or was restarted")
	}
}

// X2, T9: so are those of a space with a process of its own.
func TestKeysOfADedicatedSpaceAreRotated(t *testing.T) {
	t.Parallel()
	b := start(t, "--dedicated", "alone")
	b.awaitServed(t, "alone")
	before := b.space(t, "alone")
	must(whoAmI(t, before))(t)
	token := before.defaultToken(t)
	b.command(t, "rotate", "alone", "--ca", "--service-account-key", "--overlap=0s")
	after := b.space(t, "alone")
	must(whoAmI(t, after))(t)
	for what, config := range map[string]*rest.Config{"a kubeconfig": before.config, "a token": withToken(after.config, token)} {
		if _, err := whoAmI(t, must(kubernetes.NewForConfig(config))(t)); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s of before gets %v, want Unauthorized", what, err)
		}
	}
}

func restarts(pod *corev1.Pod) (n int32) {
	for _, c := range pod.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

// X2: a rotation that is asked for wrongly is refused, with what to say.
func TestRotationsSayWhatTheyRotate(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"nothing":             {[]string{"demo"}, []string{"--ca", "--service-account-key"}},
		"an overlap of years": {[]string{"demo", "--service-account-key", "--overlap", "9000h"}, []string{"--overlap=9000h", "168h"}},
		"an overlap of a CA":  {[]string{"demo", "--ca", "--overlap", "1h"}, []string{"--overlap=1h", "revokes certificates at once"}},
		"of no space":         {[]string{"nope", "--ca"}, []string{"nope", "not found"}},
		"of a path":           {[]string{"../demo", "--ca"}, []string{"demo", "lower case"}},
		"of the host":         {[]string{"host", "--ca"}, []string{"host", "reserved"}},
	} {
		stdout, stderr, code := runBerth(t, append([]string{"rotate", "--data-dir", b.dir}, c.args...)...)
		if err := complaint(stdout, stderr, code, c.says); err != nil {
			t.Errorf("%s: %v; it prints:\n%s%s", name, err, stdout, stderr)
		}
	}
	must(whoAmI(t, b.demo(t)))(t)
}

// U2, S19: a token names its space, too, so that clients work that keep no path of a server's URL; one that only says
// that it is of a space is nobody's, whether there is such a space or not.
func TestTokensNameTheirSpace(t *testing.T) {
	t.Parallel()
	demo := sharedBerth(t).demo(t)
	token := demo.defaultToken(t)
	config := withToken(demo.config, token)
	config.Host = rootOf(t, demo)
	if user := must(whoAmI(t, must(kubernetes.NewForConfig(config))(t)))(t); user.Username != "system:serviceaccount:default:default" {
		t.Errorf("by a URL without a path, the token is %s's", user.Username)
	}
	answers := map[string]string{}
	for _, space := range []string{"demo", "nobody"} {
		// A payload that names the space, and a signature of nobody.
		forged := "eyJhbGciOiJFUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://kubernetes.default.svc.cluster.local/spaces/`+space+`","sub":"system:serviceaccount:default:default"}`)) + ".c2ln"
		client := &http.Client{Transport: must(rest.TransportFor(withToken(config, forged)))(t)}
		code, body := fetch(t, client, config.Host+"/api/v1/secrets")
		answers[fmt.Sprint(code, body)] = space
		if code != http.StatusUnauthorized {
			t.Errorf("a forged token of %s gets %d", space, code)
		}
	}
	if len(answers) != 1 {
		t.Errorf("answers differ: %v", answers)
	}
}
