// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// answer is one line of `kubectl auth can-i`.
type answer struct{ verb, resource, namespace, want string }

func check(t *testing.T, who string, c kubernetes.Interface, answers ...answer) {
	t.Helper()
	for _, a := range answers {
		if got := canI(t, c, a.verb, a.resource, a.namespace); got != a.want {
			t.Errorf("%s: can-i %s %s -n %q: %s, want %s", who, a.verb, a.resource, a.namespace, got, a.want)
		}
	}
}

// O1, O6, O7: the answers of the seed, word for word.
func TestOwnersOfNamespacesHaveTheAnswersOfTheSeed(t *testing.T) {
	state := capsule()
	state.Access.OwnerScope.Groups = append(state.Access.OwnerScope.Groups, "solar-users")
	state.Access.Owners = append(state.Access.Owners,
		v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "joe", ClusterRoles: []string{"view", "tenant-resources"}},
		v1alpha1.Owner{Kind: v1alpha1.GroupKind, Name: "solar-users"},
		v1alpha1.Owner{Kind: v1alpha1.ServiceAccountKind, Name: "system:serviceaccount:tenant-system:robot"},
	)
	e := startEnv(t, state)
	yesNo := []answer{
		{"create", "namespaces", "", "yes"}, {"delete", "namespaces", "solar-production", "yes"}, {"get", "namespaces", "", "no"}, {"list", "namespaces", "", "no"},
		{"get", "nodes", "", "no"}, {"get", "persistentvolumes", "", "no"}, {"get", "tenants", "", "no"}, {"get", "tenants.berth.dev", "", "no"},
		{"create", "deployments.apps", "solar-production", "yes"}, {"create", "deployments.apps", "kube-system", "no"}, {"create", "rolebindings.rbac.authorization.k8s.io", "default", "no"},
		{"create", "customresourcedefinitions.apiextensions.k8s.io", "", "no"},
	}
	for who, c := range map[string]*kubernetes.Clientset{
		"alice":              e.user("alice", v1alpha1.OwnersGroup),
		"as alice":           e.as("alice", v1alpha1.OwnersGroup),
		"as bob, of a group": e.as("bob", "solar-users"),
		"as robot":           e.as("system:serviceaccount:tenant-system:robot", v1alpha1.OwnersGroup),
	} {
		check(t, who, c, yesNo...)
	}
	for who, c := range map[string]*kubernetes.Clientset{"alice, outside of the scope": e.user("alice"), "as mallory": e.as("mallory", v1alpha1.OwnersGroup)} {
		check(t, who, c, answer{"create", "namespaces", "", "no"}, answer{"delete", "namespaces", "solar-production", "no"}, answer{"get", "pods", "solar-production", "no"})
	}

	alice := e.user("alice", v1alpha1.OwnersGroup)
	if err := createNamespace(t, alice, "solar-production"); err != nil {
		t.Fatal(err)
	}
	// Rights are there at once.
	if _, err := alice.CoreV1().ConfigMaps("solar-production").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("create a config map: %v", err)
	}
	joe := e.as("joe", v1alpha1.OwnersGroup)
	check(t, "joe", joe,
		answer{"delete", "pods", "solar-production", "no"}, answer{"get", "pods", "solar-production", "yes"}, answer{"create", "namespaces", "", "yes"},
		answer{"create", "tenantresources.capsule.clastix.io", "solar-production", "no"},
	)
	if _, err := e.admin().RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant-resources"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"capsule.clastix.io"}, Resources: []string{"tenantresources"}, Verbs: []string{"get", "create"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if canI(t, joe, "create", "tenantresources.capsule.clastix.io", "solar-production") != "yes" {
			return errOr(nil)
		}
		return nil
	})
	// What she has she can give, and no more.
	wantBindings(t, e.admin(), "solar-production", "berth-solar-0-admin", "berth-solar-1-berth-namespace-deleter", "berth-solar-2-view", "berth-solar-3-tenant-resources",
		"berth-solar-4-admin", "berth-solar-5-berth-namespace-deleter", "berth-solar-6-admin", "berth-solar-7-berth-namespace-deleter")
	for role, may := range map[string]bool{"edit": true, "cluster-admin": false} {
		_, err := alice.RbacV1().RoleBindings("solar-production").Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "dave"}},
		}, metav1.CreateOptions{})
		if may && err != nil || !may && !apierrors.IsForbidden(err) {
			t.Errorf("alice binds %s: %v", role, err)
		}
	}
	if err := alice.CoreV1().Namespaces().Delete(t.Context(), "solar-production", metav1.DeleteOptions{}); err != nil {
		t.Errorf("alice deletes her namespace: %v", err)
	}
	if err := forbidden(alice.CoreV1().Namespaces().Delete(t.Context(), "kube-system", metav1.DeleteOptions{})); err != nil {
		t.Errorf("alice deletes kube-system: %v", err)
	}
}

// O4: subjects of additional role bindings are no owners.
func TestAdditionalRoleBindingsAreInEachNamespace(t *testing.T) {
	state := capsule()
	state.Access.AdditionalRoleBindings = []v1alpha1.AdditionalRoleBinding{{ClusterRoleName: "view", Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "eve"}}}}
	e := startEnv(t, state)
	check(t, "eve", e.user("eve"), answer{"create", "namespaces", "", "no"}, answer{"list", "pods", "any", "yes"}, answer{"create", "pods", "any", "no"}, answer{"list", "pods", "default", "no"})
}

// O7: owners with all rights, who can give them to others, too.
func TestOwnersOfSpacesMayDoEverythingButNodes(t *testing.T) {
	state := capsule()
	state.Access.OwnerProfile = v1alpha1.SpaceAdmin
	e := startEnv(t, state)
	alice := e.user("alice", v1alpha1.OwnersGroup)
	check(t, "alice", alice,
		answer{"create", "customresourcedefinitions.apiextensions.k8s.io", "", "yes"}, answer{"list", "secrets", "kube-system", "yes"}, answer{"get", "persistentvolumes", "", "yes"},
		answer{"get", "nodes", "", "no"}, answer{"list", "nodes.metrics.k8s.io", "", "no"}, answer{"impersonate", "users", "", "yes"},
	)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}
	if _, err := alice.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Errorf("a role with more than any: %v", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "dave"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "dave"}},
	}
	if _, err := alice.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Errorf("a binding: %v", err)
	}
	review, err := alice.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	core, apps := false, false
	for _, rule := range review.Status.ResourceRules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				if rule.Verbs[0] == "*" && len(rule.ResourceNames) == 0 {
					core = core || group == "" && resource == "pods"
					apps = apps || group == "apps" && resource == "*"
				}
				if resource == "nodes" || resource == "*" && (group == "" || group == "*") {
					t.Errorf("the list has %v", rule)
				}
			}
		}
	}
	if !core || !apps || review.Status.Incomplete {
		t.Errorf("the list lacks pods (%t) or apps (%t): %+v", !core, !apps, review.Status)
	}

	// The last right goes with the state.
	next := *state
	next.Access.Owners = []v1alpha1.Owner{{Kind: v1alpha1.UserKind, Name: "bob"}}
	e.source.Set(&next)
	check(t, "alice, who is no owner any more", alice, answer{"create", "namespaces", "", "no"}, answer{"list", "pods", "default", "no"})
	check(t, "bob", e.user("bob", v1alpha1.OwnersGroup), answer{"create", "namespaces", "", "yes"})
}

const promote = `{"metadata":{"labels":{"owner.berth.dev/promote":"true"}}}`

// O5
func TestOwnersPromoteServiceAccounts(t *testing.T) {
	state := capsule()
	e := startEnv(t, state)
	alice := e.as("alice", v1alpha1.OwnersGroup)
	if err := createNamespace(t, alice, "green-test"); err != nil {
		t.Fatal(err)
	}
	accounts := alice.CoreV1().ServiceAccounts("green-test")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "gitops-reconcile"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	label := func(c kubernetes.Interface, patch string) error {
		_, err := c.CoreV1().ServiceAccounts("green-test").Patch(t.Context(), "gitops-reconcile", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	if err := forbidden(label(alice, promote), "serviceAccountPromotion"); err != nil {
		t.Errorf("promotion while it is disabled: %v", err)
	}
	if err := forbidden(label(e.admin(), promote), "serviceAccountPromotion"); err != nil {
		t.Errorf("promotion while it is disabled, by the admin: %v", err)
	}
	next := *state
	next.Access.ServiceAccountPromotion = v1alpha1.Enabled
	next.Access.AdditionalRoleBindings = []v1alpha1.AdditionalRoleBinding{{ClusterRoleName: "admin", Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "eve"}}}}
	e.source.Set(&next)

	eve := e.user("eve")
	for what, err := range map[string]error{
		"a patch": label(eve, promote),
		"a creation": func() error {
			_, err := eve.CoreV1().ServiceAccounts("green-test").Create(t.Context(), &corev1.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: map[string]string{v1alpha1.LabelPromote: "true"}},
			}, metav1.CreateOptions{})
			return err
		}(),
		"an apply": func() error {
			_, err := eve.CoreV1().ServiceAccounts("green-test").Patch(t.Context(), "mine", types.ApplyPatchType,
				[]byte(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"mine","labels":{"owner.berth.dev/promote":"true"}}}`), metav1.PatchOptions{FieldManager: "eve"})
			return err
		}(),
	} {
		if err := forbidden(err, "only owners"); err != nil {
			t.Errorf("%s by somebody who is no owner: %v", what, err)
		}
	}
	if err := label(alice, promote); err != nil {
		t.Fatal(err)
	}
	robot := e.as("system:serviceaccount:green-test:gitops-reconcile")
	eventually(t, func() error { return createNamespace(t, robot, "green-valkey") })
	check(t, "the promoted account", robot, answer{"create", "pods", "green-valkey", "yes"}, answer{"delete", "namespaces", "green-valkey", "yes"}, answer{"get", "pods", "kube-system", "no"})
	// It owns this space, and none of the tenants below.
	shared := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shared", Labels: map[string]string{v1alpha1.LabelShare: v1alpha1.ShareChildren}}}
	_, err := robot.CoreV1().ConfigMaps("green-valkey").Create(t.Context(), shared, metav1.CreateOptions{})
	if err := forbidden(err, "no promoted ServiceAccounts"); err != nil {
		t.Errorf("the promoted account shares an object: %v", err)
	}
	if err := label(alice, `{"metadata":{"labels":{"owner.berth.dev/promote":null}}}`); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return forbidden(createNamespace(t, robot, "green-more")) })
	check(t, "the demoted account", robot, answer{"create", "pods", "green-valkey", "no"})
}

// O8
func TestACordonedSpaceIsReadAndDeletedOnly(t *testing.T) {
	state := capsule()
	e := startEnv(t, state)
	alice := e.user("alice", v1alpha1.OwnersGroup)
	if err := createNamespace(t, alice, "web"); err != nil {
		t.Fatal(err)
	}
	configs := alice.CoreV1().ConfigMaps("web")
	if _, err := configs.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cordoned, yes := *state, true
	cordoned.Access.Cordoned = &yes
	e.source.Set(&cordoned)
	for who, c := range map[string]*kubernetes.Clientset{"alice": alice, "the admin": e.admin(), "as somebody of the system": e.as("system:apiserver", "system:masters")} {
		if err := forbidden(createNamespace(t, c, "more"), "solar is cordoned", "administrator of the platform"); err != nil {
			t.Errorf("%s creates a namespace: %v", who, err)
		}
		_, err := c.CoreV1().ConfigMaps("web").Patch(t.Context(), "x", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
		if err := forbidden(err, "cordoned"); err != nil {
			t.Errorf("%s changes a config map: %v", who, err)
		}
	}
	check(t, "alice", alice, answer{"create", "pods", "web", "no"}, answer{"get", "pods", "web", "yes"}, answer{"delete", "pods", "web", "yes"})
	review, err := alice.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "web"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range review.Status.ResourceRules {
		for _, verb := range rule.Verbs {
			if (verb == "create" || verb == "update" || verb == "patch" || verb == "*") && !strings.HasPrefix(rule.Resources[0], "selfsubject") {
				t.Errorf("the list of rights has %v", rule)
			}
		}
	}
	if _, err := configs.Get(t.Context(), "x", metav1.GetOptions{}); err != nil {
		t.Errorf("read: %v", err)
	}
	if err := configs.Delete(t.Context(), "x", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete: %v", err)
	}
	// Controllers go on: the namespace, which they empty, goes away.
	if err := alice.CoreV1().Namespaces().Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if _, err := e.admin().CoreV1().Namespaces().Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errOr(err)
		}
		return nil
	})
	e.source.Set(state)
	if err := createNamespace(t, alice, "more"); err != nil {
		t.Errorf("after the end: %v", err)
	}
}
