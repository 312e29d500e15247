// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
)

// L3: one StatefulSet with 2,147,483,647 replicas killed the process, and so did 50,000 with a large template: its controller makes
// all pods in memory first.
func TestHostileStatefulSetsHaveNoMoreReplicasThanTheirControllerCanHold(t *testing.T) {
	_, _, config := bounded(t, nil)
	sets := clientset(t, config).AppsV1().StatefulSets("default")
	set := func(name string, replicas int32, text int) *appsv1.StatefulSet {
		template := template("db")
		template.Annotations = map[string]string{"text": strings.Repeat("x", text)}
		return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(replicas), Selector: selector("db"), Template: template,
		}}
	}
	want := func(name string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit statefulset-bytes") {
			t.Errorf("%s: %.300v", name, err)
		}
	}
	for name, hostile := range map[string]*appsv1.StatefulSet{"many": set("many", 2_147_483_647, 0), "large": set("large", 200, 50_000)} {
		_, err := sets.Create(t.Context(), hostile, metav1.CreateOptions{})
		want(name, err)
	}
	if _, err := sets.Create(t.Context(), set("db", 1000, 10), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := sets.UpdateScale(t.Context(), "db", &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "default"}, Spec: autoscalingv1.ScaleSpec{Replicas: 2_147_483_647}}, metav1.UpdateOptions{})
	want("scale", err)
	_, err = sets.Patch(t.Context(), "db", types.MergePatchType, []byte(`{"spec":{"replicas":2147483647}}`), metav1.PatchOptions{})
	want("patch", err)
	_, err = sets.Patch(t.Context(), "new", types.ApplyYAMLPatchType, []byte(`{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"new"},"spec":{"replicas":2147483647,
		"selector":{"matchLabels":{"app":"db"}},"template":{"metadata":{"labels":{"app":"db"}},"spec":{"containers":[{"name":"db","image":"db"}]}}}}`),
		metav1.PatchOptions{FieldManager: "test"})
	want("server-side apply", err)
	if _, err := sets.Patch(t.Context(), "db", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":0}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("fewer replicas: %v", err)
	}
}

// L3: a pod with 10,000 ports, of 60 KB, had the API server make 7 GiB of warnings, one for each two; and a role of 6 KB, made by a
// service account that may only create roles, as many rules to compare.
func TestHostileWritesAreRefusedBeforeTheirPartsAreComparedWithEachOther(t *testing.T) {
	_, _, config := bounded(t, nil)
	client := clientset(t, config)
	pod := template("web")
	pod.Spec.Containers[0].Ports = slices.Repeat([]corev1.ContainerPort{{ContainerPort: 1}}, 1000)
	_, err := client.CoreV1().PodTemplates("default").Create(t.Context(), &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Template: pod}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit pod-ports") {
		t.Errorf("a pod with many ports: %.300v", err)
	}
	maker := rest.CopyConfig(config)
	maker.Impersonate.UserName = "maker"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "maker"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, Verbs: []string{"create"},
	}}}
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "maker"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "maker"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "maker"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var many []string
	for i := range 50 {
		many = append(many, fmt.Sprintf("a%d", i))
	}
	hostile := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "hostile"}, Rules: []rbacv1.PolicyRule{{APIGroups: many, Resources: many, Verbs: many}}}
	eventually(t, func() error { // once the maker may
		_, err := clientset(t, maker).RbacV1().ClusterRoles().Create(t.Context(), hostile, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit role-combinations") {
			return fmt.Errorf("a role with many combinations: %w", err)
		}
		return nil
	})
}

// L3: who asks what they may do has all rules of all their bindings in memory, and who makes a role has them compared with its own:
// 2,000 bindings of 100,000 rules took 12 GB.
func TestHostileBindingsGiveNoMoreRulesThanCanBeCollected(t *testing.T) {
	_, _, config := bounded(t, nil)
	client := clientset(t, config)
	rule := func(i int) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{fmt.Sprintf("r%d", i)}, Verbs: []string{"get"}}
	}
	roles := client.RbacV1().ClusterRoles()
	role, err := roles.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "many"}, Rules: []rbacv1.PolicyRule{rule(0)}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bind := func() error {
		_, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "many-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "many"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}},
		}, metav1.CreateOptions{})
		return err
	}
	for i := range bounds.BoundRules.Max() / 1000 {
		if err := bind(); err != nil {
			t.Fatalf("binding %d: %v", i, err)
		}
	}
	for i := range 999 {
		role.Rules = append(role.Rules, rule(i+1))
	}
	if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := func(what string, err error) error {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit bound-rules") {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	eventually(t, func() error { return want("one binding more", bind()) }) // once the rules are known
	user := rest.CopyConfig(config)
	user.Impersonate.UserName, user.Impersonate.Groups = "user", []string{"system:authenticated"}
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}
	answer, err := clientset(t, user).AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil || !strings.Contains(answer.Status.EvaluationError, "limit bound-rules") || len(answer.Status.ResourceRules) > 0 {
		t.Errorf("a question of what somebody may do: %v, %v", answer, err)
	}
}
