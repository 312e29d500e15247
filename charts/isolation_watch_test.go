// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// S21: with the rights of the chart, Berth sees each object that isolates a space change, and puts it back.
func TestBerthsAccountPutsBackWhatIsolatesASpace(t *testing.T) {
	r, ctx := startReleases(t), t.Context()
	syncOptions, err := resources.Parse([]string{exported})
	if err != nil {
		t.Fatal(err)
	}
	mine := &isolation.Isolation{Space: translate.Space{Name: "mine", Store: "s", Platform: "berth"}, Options: with("platform", syncOptions)}
	if err := mine.Apply(ctx, r.berth); err != nil {
		t.Fatal(err)
	}
	changes := make(chan isolation.Change, 100)
	watch := &isolation.Watch{
		Host: r.berth, Of: func(space string) *isolation.Isolation {
			if space != "mine" {
				return nil
			}
			return mine
		},
		Spaces: func() []string { return []string{"mine"} }, Changed: func(c isolation.Change) { changes <- c },
	}
	run, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		watch.Run(run)
	}()
	defer func() { stop(); <-done }()

	const ns, role = "berth-mine", "platform-berth-space"
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	changed := func(o client.Object) func() error {
		return func() error {
			return r.admin.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"berth.dev/space":null}}}`)))
		}
	}
	for name, somebody := range map[string]func() error{
		"Namespace berth-mine": func() error {
			return r.admin.Patch(ctx, namespace(ns, nil), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)))
		},
		"ResourceQuota berth":                   func() error { return r.admin.Delete(ctx, &corev1.ResourceQuota{ObjectMeta: at("berth")}) },
		"LimitRange berth":                      func() error { return r.admin.Delete(ctx, &corev1.LimitRange{ObjectMeta: at("berth")}) },
		"NetworkPolicy berth":                   changed(&networkingv1.NetworkPolicy{ObjectMeta: at("berth")}),
		"ServiceAccount berth-syncer":           func() error { return r.admin.Delete(ctx, &corev1.ServiceAccount{ObjectMeta: at("berth-syncer")}) },
		"RoleBinding " + role + "-impersonator": func() error { return r.admin.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: at(role + "-impersonator")}) },
		"RoleBinding " + role: func() error { // to another role
			if err := r.admin.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: at(role)}); err != nil {
				return err
			}
			other := spaceBinding(ns, ns)
			other.Labels, other.RoleRef.Name = map[string]string{translate.LabelSpace: "mine", translate.LabelManagedBy: translate.ManagedBy}, "view"
			return r.admin.Create(ctx, other)
		},
		"ClusterRoleBinding berth-mine": func() error {
			return r.admin.Delete(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		},
	} {
		if err := somebody(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := name
		if name != "Namespace berth-mine" && name != "ClusterRoleBinding berth-mine" {
			want += " in namespace berth-mine"
		}
		for seen := ""; seen != want; {
			select {
			case change := <-changes:
				seen = change.Object
			case <-ctx.Done():
				t.Fatalf("nobody saw that %s was changed", want)
			}
		}
		if err := mine.Apply(ctx, r.berth); err != nil {
			t.Errorf("%s is not put back: %v", want, err)
		}
	}
	binding := &rbacv1.RoleBinding{}
	if err := r.admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: role}, binding); err != nil || binding.RoleRef.Name != role {
		t.Errorf("the binding is to %s (%v)", binding.RoleRef.Name, err)
	}
}
