// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/sharing"
)

func labelShare(value string) []byte {
	return fmt.Appendf(nil, `{"metadata":{"labels":{"berth.dev/share":%s}}}`, value)
}

// H8, H5: only owners share, and change or delete what is shared, by whatever verb. What can't be shared is refused with its field.
func TestOnlyOwnersShareObjects(t *testing.T) {
	e := startEnv(t, capsule())
	admin, alice, dora := e.admin(), e.user("alice", v1alpha1.OwnersGroup), e.user("dora")
	if err := createNamespace(t, admin, "web"); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "dora"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "dora"}},
	}
	if _, err := admin.RbacV1().RoleBindings("web").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if canI(t, dora, "patch", "configmaps", "web") != "yes" || canI(t, alice, "patch", "configmaps", "web") != "yes" {
			return fmt.Errorf("they have no rights yet")
		}
		return nil
	})
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Labels: map[string]string{v1alpha1.LabelShare: v1alpha1.ShareChildren}}}
	_, err := dora.CoreV1().ConfigMaps("web").Create(t.Context(), settings, metav1.CreateOptions{})
	if err := forbidden(err, "metadata.labels[berth.dev/share]", "only owners"); err != nil {
		t.Errorf("somebody who owns nothing creates one: %v", err)
	}
	generated := settings.DeepCopy()
	generated.Name, generated.GenerateName = "", "settings-"
	for _, o := range []*corev1.ConfigMap{settings, generated} {
		if _, err := alice.CoreV1().ConfigMaps("web").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch := func(c kubernetes.Interface, name, body string) error {
		_, err := c.CoreV1().ConfigMaps("web").Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	for what, err := range map[string]error{
		"change":       patch(dora, "settings", `{"data":{"a":"b"}}`),
		"change value": patch(dora, "settings", string(labelShare(`"descendants"`))),
		"unshare":      patch(dora, "settings", string(labelShare("null"))),
		"delete":       dora.CoreV1().ConfigMaps("web").Delete(t.Context(), "settings", metav1.DeleteOptions{}),
		"delete all":   dora.CoreV1().ConfigMaps("web").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: v1alpha1.LabelShare}),
	} {
		if err := forbidden(err, "is shared", "only owners"); err != nil {
			t.Errorf("%s by somebody who owns nothing: %v", what, err)
		}
	}
	for what, refused := range map[string]struct {
		err   error
		words []string
	}{
		"a value":                {patch(alice, "settings", string(labelShare(`"all"`))), []string{"metadata.labels[berth.dev/share]", `"all"`, `"children"`, `"descendants"`}},
		"the CA":                 {patch(alice, "kube-root-ca.crt", string(labelShare(`"children"`))), []string{"metadata.name", "kube-root-ca.crt"}},
		"a ServiceAccount":       {labelAccount(t, alice), []string{"metadata.labels[berth.dev/share]", `"children"`, "serviceaccounts", "configmaps, secrets"}},
		"a token":                {createToken(t, alice), []string{"type", "kubernetes.io/service-account-token"}},
		"a binding for everyone": {bindAll(t, alice), []string{"subjects[0].name", "system:authenticated"}},
		"a Role":                 {shareRole(t, alice), []string{"metadata.labels[berth.dev/share]", "spec.ownerProfile of tenant solar is NamespaceAdmin", "remove the label, or ask an admin for the profile SpaceAdmin"}},
	} {
		if err := forbidden(refused.err, refused.words...); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := patch(alice, "settings", `{"data":{"a":"b"}}`); err != nil {
		t.Errorf("a change by an owner: %v", err)
	}
	if err := patch(alice, "settings", string(labelShare("null"))); err != nil {
		t.Errorf("an owner ends it: %v", err)
	}
	if err := patch(dora, "settings", `{"data":{"a":"c"}}`); err != nil {
		t.Errorf("a change of what is no longer shared: %v", err)
	}
	state := capsule()
	state.Access.OwnerProfile = v1alpha1.SpaceAdmin
	e.source.Set(state)
	eventually(t, func() error { return shareRole(t, alice) })
	state = capsule()
	state.Tenant = ""
	e.source.Set(state)
	if err := forbidden(patch(alice, "settings", string(labelShare(`"children"`))), "belongs to no tenant"); err != nil {
		t.Errorf("in a space without a tenant: %v", err)
	}
}

func labelAccount(t *testing.T, c kubernetes.Interface) error {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot", Labels: map[string]string{v1alpha1.LabelShare: v1alpha1.ShareChildren}}}
	_, err := c.CoreV1().ServiceAccounts("web").Create(t.Context(), account, metav1.CreateOptions{})
	return err
}

func shareRole(t *testing.T, c kubernetes.Interface) error {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "operators", Labels: map[string]string{v1alpha1.LabelShare: v1alpha1.ShareChildren}}}
	_, err := c.RbacV1().Roles("web").Create(t.Context(), role, metav1.CreateOptions{})
	return err
}

func createToken(t *testing.T, c kubernetes.Interface) error {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: "token", Labels: map[string]string{v1alpha1.LabelShare: v1alpha1.ShareChildren}, Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	}
	_, err := c.CoreV1().Secrets("web").Create(t.Context(), secret, metav1.CreateOptions{})
	return err
}

func bindAll(t *testing.T, c kubernetes.Interface) error {
	t.Helper()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "all", Labels: map[string]string{v1alpha1.LabelShare: v1alpha1.ShareDescendants}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}},
	}
	_, err := c.RbacV1().RoleBindings("web").Create(t.Context(), binding, metav1.CreateOptions{})
	return err
}

// H8: a control plane names what is shared, now and with each change before and after, and nothing else of these resources.
func TestAControlPlaneNamesWhatIsShared(t *testing.T) {
	state := capsule()
	state.Access.OwnerProfile = v1alpha1.SpaceAdmin
	e := startEnv(t, state)
	admin := e.admin()
	var mu sync.Mutex
	var heard []string
	e.plane.FollowShared(func(name sharing.Name) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, name.String())
	}, func() {})
	for _, o := range []*corev1.ConfigMap{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "plain"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shared", Labels: map[string]string{v1alpha1.LabelShare: v1alpha1.ShareChildren}}},
	} {
		if _, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "shared", Labels: map[string]string{v1alpha1.LabelShare: v1alpha1.ShareChildren}}}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var found []string
	if err := e.plane.EachShared(t.Context(), func(name sharing.Name) { found = append(found, name.String()) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	if !slices.Equal(found, []string{"clusterroles /shared", "configmaps default/shared"}) {
		t.Errorf("found %q", found)
	}
	if _, err := admin.CoreV1().ConfigMaps("default").Patch(t.Context(), "shared", types.MergePatchType, labelShare("null"), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := admin.RbacV1().ClusterRoles().Delete(t.Context(), "shared", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"configmaps default/shared", "clusterroles /shared", "configmaps default/shared", "clusterroles /shared"}; !slices.Equal(heard, want) {
			return fmt.Errorf("heard %q, want %q", heard, want)
		}
		return nil
	})
}
