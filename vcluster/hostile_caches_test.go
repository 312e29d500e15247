// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
)

// ownObjects is more than what a space's own objects take in informers: bootstrap roles are most of it.
const ownObjects = 1 << 20

// L3: an empty rule of a NetworkPolicy takes two bytes in the store, and 48 in the memory of each informer: 256 MiB of such
// objects took gigabytes, which nothing counted.
func TestHostileObjectsTakeNoMoreMemoryInCachesThanTheirSpaceMay(t *testing.T) {
	const limit = 4 << 20
	account, p, config := bounded(t, bounds.Limits{bounds.CachedBytes: limit})
	informers := p.Informers()
	informers.Networking().V1().NetworkPolicies().Informer()
	informers.Start(t.Context().Done())
	policies := clientset(t, config).NetworkingV1().NetworkPolicies("default")
	policy := func(name string, rules int) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/held"}},
			Spec:       networkingv1.NetworkPolicySpec{Ingress: make([]networkingv1.NetworkPolicyIngressRule, rules)},
		}
	}
	refused := func(err error) bool {
		if err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit cached-bytes")) {
			t.Fatalf("%.300v", err)
		}
		return err != nil
	}
	made := 0
	for ; made < 1000; made++ {
		if _, err := policies.Create(t.Context(), policy(fmt.Sprintf("p%d", made), 1000), metav1.CreateOptions{}); refused(err) {
			break
		}
	}
	if least, most := limit/80_000, limit/48_000; made < least || made > most {
		t.Fatalf("%d policies of 48 KB or more were made, want %d to %d", made, least, most)
	}
	_, err := policies.Patch(t.Context(), "applied", types.ApplyYAMLPatchType,
		[]byte(`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"applied"},"spec":{"podSelector":{}}}`),
		metav1.PatchOptions{FieldManager: "test"})
	if !refused(err) {
		t.Error("server-side apply makes a further policy")
	}

	// What is there may grow up to the limit, and no further.
	grow := `{"spec":{"egress":[` + strings.TrimSuffix(strings.Repeat("{},", 1000), ",") + `]}}`
	grown := 0
	for ; grown < made; grown++ {
		_, err := policies.Patch(t.Context(), fmt.Sprintf("p%d", grown), types.MergePatchType, []byte(grow), metav1.PatchOptions{})
		if refused(err) {
			break
		}
		eventually(t, func() error { // the informer has seen it
			if n := account.Used(bounds.CachedBytes); n < int64(made+grown)*48_000 {
				return fmt.Errorf("%d bytes are counted", n)
			}
			return nil
		})
	}
	if grown == 0 || grown > 10 {
		t.Errorf("%d policies grew by 48 KB, want 1 to 10", grown)
	}

	// A space that is full can be emptied, also of objects with finalizers.
	if err := policies.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range made {
		if _, err := policies.Patch(t.Context(), fmt.Sprintf("p%d", i), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		if n := account.Used(bounds.CachedBytes); n > ownObjects {
			return fmt.Errorf("only the space's own objects are cached, and %d bytes are counted", n)
		}
		return nil
	})
	if _, err := policies.Create(t.Context(), policy("more", 1000), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	stop(t, p)
	if n := account.Used(bounds.CachedBytes); n != 0 {
		t.Errorf("%d bytes are counted of a space that sleeps", n)
	}
}

// L3: the garbage collector has a node in its graph for each owner that it doesn't know: 50,000 objects with a hundred owners each
// took 3 GiB. Their finalizers keep them for as long as their tenant likes.
func TestHostileOwnersAreCountedAsWhatTheGarbageCollectorHolds(t *testing.T) {
	gateway := newTestGateway(t)
	c := gateway.config(t, "owners")
	c.Controllers, c.Account = []string{names.GarbageCollectorController}, bounds.NewAccount(bounds.Limits{bounds.CachedBytes: 4 << 20})
	p := gateway.start(t, c)
	client := clientset(t, admin(t, p)).Discovery().RESTClient()
	defineThings(t, admin(t, p), client)
	owners := func(i int) string {
		var all []string
		for n := range bounds.OwnerReferences.Max() {
			all = append(all, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","name":"o%d-%d","uid":"u%[1]d-%[2]d"}`, i, n))
		}
		return strings.Join(all, ",")
	}
	made := 0
	for ; made < 1000; made++ {
		body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"thing","metadata":{"name":"t%d","finalizers":["example.com/held"],"ownerReferences":[%s]}}`, made, owners(made))
		err := send(t.Context(), client, "POST", thingsPath, runtime.ContentTypeJSON, body)
		if made == 0 && err == nil { // the collector starts
			eventually(t, func() error {
				if n := c.Account.Used(bounds.CachedBytes); n < 70_000 {
					return fmt.Errorf("%d bytes are counted", n)
				}
				return nil
			})
		}
		if err == nil {
			continue
		}
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit cached-bytes") {
			t.Fatalf("%.300v", err)
		}
		break
	}
	if made == 1000 {
		t.Errorf("%d owners take %d bytes", made*bounds.OwnerReferences.Max(), c.Account.Used(bounds.CachedBytes))
	}
	stop(t, p)
	if n := c.Account.Used(bounds.CachedBytes); n != 0 {
		t.Errorf("%d bytes are counted of a space that sleeps", n)
	}
}

// L3: the garbage collector begins a request for each object that a deleted owner leaves behind, all at once: 15,000 took 2 GiB,
// and as many as a space may have ended the process.
func TestHostileOrphansDoNotBeginARequestEachAtOnce(t *testing.T) {
	c := config(t, "orphans")
	c.Controllers = []string{names.GarbageCollectorController}
	p := start(t, c)
	maps := clientset(t, p.Loopback()).CoreV1().ConfigMaps("default")
	owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const orphans = 2000
	owned := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}
	for i := range orphans {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("orphan-%d", i), OwnerReferences: owned}}
		if _, err := maps.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	before, most := goruntime.NumGoroutine(), 0
	if err := maps.Delete(t.Context(), "owner", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		most = max(most, goruntime.NumGoroutine()-before)
		_, err := maps.Get(t.Context(), "owner", metav1.GetOptions{})
		switch {
		case err == nil:
			return errors.New("the owner is still there")
		case !apierrors.IsNotFound(err):
			return err
		}
		return nil
	})
	left, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(left.Items, func(m corev1.ConfigMap) bool { return len(m.OwnerReferences) > 0 }); i >= 0 || len(left.Items) < orphans {
		t.Errorf("%d objects are left; number %d has an owner", len(left.Items), i)
	}
	if most < orphans/2 || most > orphans*3/2 { // of the collector's own, one for each
		t.Errorf("%d objects without their owner took %d goroutines", orphans, most)
	}
}
