// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
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
	for name, hostile := range map[string]*appsv1.StatefulSet{"many": set("many", 2_147_483_647, 0), "large": set("large", 200, 100_000)} {
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
