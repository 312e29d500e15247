// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// L1: what a tenant may have open is bounded over all its spaces, one user leaves others of the tenant some of it, and other tenants and
// the platform's admins are served. The setting on Tenant takes effect at once.
func TestHostileWatchesOfATenantAreBoundedTogether(t *testing.T) {
	t.Parallel()
	users := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(users, []byte("of-flood,flood,u1,,solar\nof-bob,bob,u2,,solar\nof-trent,trent,u5,,solar\nof-root,root,u3,system:masters\nof-eve,eve,u4,,lunar\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := start(t, "--operator", "--token-auth-file", users)
	host := b.host(t)
	host.apply(t, tenantObject("solar", "{limits: {requests-long-running: 40}}"))
	host.apply(t, tenantObject("lunar", "{}"))
	awaitTenant(t, host, "solar")
	awaitTenant(t, host, "lunar")
	host.apply(t, "{apiVersion: berth.dev/v1alpha1, kind: Space, metadata: {name: solar-b}, spec: {tenantName: solar}}")
	host.kubectl(t, "wait", "--for=condition=Ready", "space/solar-b", "--timeout=180s")
	for _, space := range []string{"solar", "solar-b", "lunar"} {
		b.space(t, space).kubectl(t, "create", "clusterrolebinding", "all", "--clusterrole=view", "--user=flood", "--user=bob", "--user=trent", "--user=eve")
	}
	open := func(token, space string) (watch.Interface, error) {
		solar := b.space(t, "solar")
		config := withToken(solar.config, token)
		config.Host = solar.endpoint() + "/spaces/" + space
		return must(kubernetes.NewForConfig(config))(t).CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	}
	// fill opens watches until one is refused. The spaces' own watches are in process, and do not count.
	fill := func(token string) (watches []watch.Interface, refusal error) {
		for i := range 100 {
			w, err := open(token, []string{"solar", "solar-b"}[i%2])
			if err != nil {
				return watches, err
			}
			t.Cleanup(w.Stop)
			watches = append(watches, w)
		}
		return watches, errors.New("nothing is refused")
	}
	eventually(t, func() error { // the bindings are there
		w, err := open("of-flood", "solar-b")
		if err == nil {
			w.Stop()
		}
		return err
	})
	flood, err := fill("of-flood")
	if _, retry := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !retry || !strings.Contains(err.Error(), "the user's limit requests-long-running is reached") {
		t.Fatalf("after %d watches of one user: %v", len(flood), err)
	}
	other := "of-bob"
	bob, err := fill(other)
	if len(bob) == 0 { // by chance, two users count as one
		t.Log("bob counts as the user who floods:", err)
		other = "of-trent"
		bob, err = fill(other)
	}
	if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "the tenant's limit requests-long-running is reached") {
		t.Fatalf("after %d and %d watches: %v", len(flood), len(bob), err)
	}
	if len(flood) != 35 || len(bob) != 5 {
		t.Errorf("one user has %d watches, and another one %d; want 35 and 5 of 40", len(flood), len(bob))
	}
	for token, space := range map[string]string{"of-eve": "lunar", "of-root": "solar"} {
		w, err := open(token, space)
		if err != nil {
			t.Errorf("with the token %s: %v", token, err)
			continue
		}
		w.Stop()
	}
	host.kubectl(t, "patch", "tenant", "solar", "--type", "merge", "--patch", "spec: {limits: {requests-long-running: 50}}")
	eventually(t, func() error {
		w, err := open(other, "solar-b")
		if err == nil {
			t.Cleanup(w.Stop)
		}
		return err
	})
	bob[0].Stop()
	if _, err := b.space(t, "solar").CoreV1().ConfigMaps("default").List(context.Background(), metav1.ListOptions{}); err != nil {
		t.Errorf("requests that end are not held up: %v", err)
	}
}
