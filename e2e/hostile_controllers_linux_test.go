// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
)

// L3: a StatefulSet's controller makes all its pods in memory before it creates the first. One with 2,147,483,647 replicas ended the
// process that all spaces share; as many as the limit allows, of as many StatefulSets as controllers work on, don't.
func TestHostileStatefulSetsHoldABoundedPartOfTheProcess(t *testing.T) {
	a := attack(t)
	set := func(name string, replicas int32, text int) *appsv1.StatefulSet {
		labels := map[string]string{"app": name}
		return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: labels}, PodManagementPolicy: appsv1.ParallelPodManagement,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"text": strings.Repeat("x", text)}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}, SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/never"}}},
			},
		}}
	}
	sets := a.attacker.AppsV1().StatefulSets(metav1.NamespaceDefault)
	for name, hostile := range map[string]*appsv1.StatefulSet{"many": set("many", math.MaxInt32, 0), "large": set("large", 1000, 50_000)} {
		if _, err := sets.Create(t.Context(), hostile, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit "+bounds.StatefulSetBytes.String()) {
			t.Errorf("%s: %.300v", name, err)
		}
	}
	const text = 50_000
	var making sync.WaitGroup
	for i := range 20 {
		making.Go(func() {
			name := fmt.Sprintf("set-%d", i)
			if _, err := sets.Create(t.Context(), set(name, int32(bounds.StatefulSetBytes.Max()/(text+1000)), text), metav1.CreateOptions{}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	making.Wait()
	eventually(t, func() error { // the controller works on them
		pods, err := a.attacker.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{Limit: 5})
		if err == nil && len(pods.Items) < 5 {
			err = fmt.Errorf("there are %d pods", len(pods.Items))
		}
		return err
	})
	a.survives(t)
}
