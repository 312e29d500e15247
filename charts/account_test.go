// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// TestMain keeps the logs of hosts out of the tests' output.
func TestMain(m *testing.M) {
	os.Exit(testhost.Main(m, func() (io.Closer, error) { return io.NopCloser(nil), nil }))
}

// M4, T7: spaces are created, isolated, repaired, and deleted under the rights of the chart, whatever they are called and
// whenever that is.
func TestBerthsAccountIsolatesASpaceOfAnyName(t *testing.T) {
	r, ctx := startReleases(t), t.Context()
	syncOptions, err := resources.Parse([]string{exported})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "named-later", strings.Repeat("x", translate.MaxSpaceName)} {
		space := translate.Space{Name: name, Store: "s", Platform: "berth"}
		isolate := func() error { return isolation.Apply(ctx, r.berth, space, nil, with("platform", syncOptions)...) }
		if err := isolate(); err != nil {
			t.Fatal(err)
		}
		at := client.ObjectKey{Name: space.HostNamespace()}
		ns, binding := &corev1.Namespace{}, &rbacv1.ClusterRoleBinding{}
		if err := errors.Join(r.admin.Get(ctx, at, ns), r.admin.Get(ctx, at, binding)); err != nil {
			t.Fatal(err)
		}
		if ns.Labels[translate.LabelPlatform] != "berth" || binding.RoleRef.Name != "platform-berth-space-classes" || binding.OwnerReferences[0].UID != ns.UID {
			t.Errorf("the namespace has the labels %v, the binding is %v", ns.Labels, binding)
		}
		// The account of the space has its rights, in its namespace and on classes, and is held to what is its own.
		account, err := client.New(syncer.AsAccount(r.config, space), client.Options{Scheme: scheme.Scheme})
		if err != nil {
			t.Fatal(err)
		}
		if err := isolation.WaitEnforced(ctx, account, space); err != nil {
			t.Fatal(err)
		}
		own := priorityClass(name+".low", name)
		r.eventually(t, "the space's account may not make a class", func(ctx context.Context) bool { return account.Create(ctx, own.DeepCopy(), client.DryRunAll) == nil })
		if err := account.Create(ctx, priorityClass("b.low", "b"), client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("a class of another space: %v", err)
		}

		// An admin's mistakes are repaired.
		ns.Labels["pod-security.kubernetes.io/enforce"] = "privileged"
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "eve"})
		if err := errors.Join(r.admin.Update(ctx, ns), r.admin.Update(ctx, binding)); err != nil {
			t.Fatal(err)
		}
		if err := isolate(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.admin.Get(ctx, at, ns), r.admin.Get(ctx, at, binding)); err != nil {
			t.Fatal(err)
		}
		if level := ns.Labels["pod-security.kubernetes.io/enforce"]; level != "baseline" || len(binding.Subjects) != 1 {
			t.Errorf("the level is %q, and bound are %v", level, binding.Subjects)
		}
		// So is a binding to the role of a release that the space was of before.
		if err := r.admin.Delete(ctx, binding); err != nil {
			t.Fatal(err)
		}
		former := classBinding(binding.Name, name, "former-space-classes", space.HostNamespace())
		if err := r.admin.Create(ctx, former); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(isolate(), r.admin.Get(ctx, at, binding)); err != nil || binding.RoleRef.Name != "platform-berth-space-classes" {
			t.Errorf("the role is still %s (%v)", binding.RoleRef.Name, err)
		}

		// The process of a dedicated space reaches the host by a token of the account, and may watch until it is shared again.
		pods := func(ctx context.Context) error {
			return account.List(ctx, &corev1.PodList{}, client.InNamespace(space.HostNamespace()))
		}
		volumes := func(ctx context.Context) error { return account.List(ctx, &corev1.PersistentVolumeList{}) }
		dedicated := append(with("platform", syncOptions), isolation.Dedicated(syncOptions))
		if err := isolation.Apply(ctx, r.berth, space, nil, dedicated...); err != nil {
			t.Fatal(err)
		}
		r.eventually(t, "the account of a dedicated space may not watch", func(ctx context.Context) bool { return pods(ctx) == nil && volumes(ctx) == nil })
		if err := account.List(ctx, &corev1.PodList{}); !apierrors.IsForbidden(err) {
			t.Errorf("the account of a dedicated space lists pods of all namespaces: %v", err)
		}
		token := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space.HostNamespace(), Name: syncer.ServiceAccount}}
		r.eventually(t, "there is no token of the account", func(ctx context.Context) bool {
			return r.berth.SubResource("token").Create(ctx, token, &authenticationv1.TokenRequest{}) == nil
		})
		token.Name = "default"
		if err := r.berth.SubResource("token").Create(ctx, token, &authenticationv1.TokenRequest{}); !apierrors.IsForbidden(err) {
			t.Errorf("a token of what the space's pods run as: %v", err)
		}
		shared := append(with("platform", syncOptions), isolation.Undedicated(syncOptions))
		if err := isolation.Apply(ctx, r.berth, space, nil, shared...); err != nil {
			t.Fatal(err)
		}
		r.eventually(t, "the account of a space that is shared again may watch", func(ctx context.Context) bool {
			return apierrors.IsForbidden(pods(ctx)) && apierrors.IsForbidden(volumes(ctx))
		})

		secret := kubeconfigSecret(name+"-kubeconfig", name, "berth", kubeconfigType)
		for range 2 {
			if err := apply(ctx, r.berth, secret.DeepCopy()); err != nil {
				t.Errorf("the Secret: %v", err)
			}
		}
		if err := r.berth.Delete(ctx, secret); err != nil {
			t.Errorf("delete the Secret: %v", err)
		}
		if _, err := isolation.Remove(ctx, r.berth, account, space); err != nil {
			t.Error(err)
		}
		if err := r.admin.Get(ctx, at, ns); err == nil && ns.DeletionTimestamp.IsZero() {
			t.Error("the namespace is not being deleted")
		}
	}
}
