// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/bounds"
)

// L3: a request that impersonated somebody in 3,000 groups took 1.4 s of a processor, which nothing could interrupt, for each 200
// bindings of 1,000 subjects.
func TestHostileRequestsImpersonateFewGroups(t *testing.T) {
	_, _, config := bounded(t, nil)
	var groups []string
	for i := range 300 {
		groups = append(groups, fmt.Sprintf("g%d", i))
	}
	want := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit identity-groups") {
			t.Errorf("%s: %.300v", what, err)
		}
	}
	many := rest.CopyConfig(config)
	many.Impersonate.UserName, many.Impersonate.Groups = "user", groups
	_, err := clientset(t, many).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	want("groups", err)
	many.Impersonate.Groups, many.Impersonate.Extra = nil, map[string][]string{"a": groups[:150], "b": groups[150:]}
	_, err = clientset(t, many).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	want("extra", err)
	_, err = clientset(t, config).AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "user", Groups: groups, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}},
	}, metav1.CreateOptions{})
	want("a review", err)
	few := rest.CopyConfig(config)
	few.Impersonate.UserName, few.Impersonate.Groups = "user", append(groups[:200:200], "system:masters")
	if _, err := clientset(t, few).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("few groups: %v", err)
	}
}

// L3: any request was compared with 40 million verbs of 2,000 bindings: a role that grows counts for each of its bindings, wherever
// they are.
func TestHostileRolesAreComparedWithRequestsInTime(t *testing.T) {
	_, _, config := bounded(t, nil)
	rbac := clientset(t, config).RbacV1()
	role, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "many"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bind := func() error {
		_, err := rbac.RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "many-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "many"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}},
		}, metav1.CreateOptions{})
		return err
	}
	const verbs = 9000
	for range bounds.BoundWords.Max() / verbs {
		if err := bind(); err != nil {
			t.Fatal(err)
		}
	}
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}}
	for i := range verbs {
		rule.Verbs = append(rule.Verbs, fmt.Sprintf("v%d", i))
	}
	role.Rules = []rbacv1.PolicyRule{rule}
	eventually(t, func() error { // once the bindings are known
		_, err := rbac.ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit bound-words") {
			return fmt.Errorf("a role that grows: %.300w", err)
		}
		return nil
	})
	role.Rules[0].Verbs = rule.Verbs[:verbs/2]
	if _, err := rbac.ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Errorf("a smaller role: %v", err)
	}
}
