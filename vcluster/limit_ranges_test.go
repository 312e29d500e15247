// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// L3: with a LimitRange of 9,000 defaults, of 300 KB, the API server took 2.3 s and 670 MiB for each pod of 250 containers.
func TestHostileLimitRangesGiveNoMoreDefaultsThanAPodCanHold(t *testing.T) {
	_, _, config := bounded(t, nil)
	client := clientset(t, config)
	limits := func(name string, resources int) error {
		item := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{}, DefaultRequest: corev1.ResourceList{}}
		for i := range resources {
			item.Default[corev1.ResourceName(fmt.Sprintf("example.com/%s-%d", name, i))] = quantity("1")
		}
		item.DefaultRequest = item.Default
		_, err := client.CoreV1().LimitRanges("default").Create(t.Context(), &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}},
		}, metav1.CreateOptions{})
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: template("web").Spec}
	pod.Spec.Containers = slices.Repeat(pod.Spec.Containers, 200)
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Name = fmt.Sprintf("c%d", i)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := limits("many", 60); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit quota-names") {
		t.Errorf("a LimitRange of many resources: %.300v", err)
	}
	for _, name := range []string{"a", "b"} {
		if err := limits(name, 40); err != nil {
			t.Fatal(err)
		}
	}
	pod.Name = "later"
	eventually(t, func() error { // once the LimitRanges have been seen
		_, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit defaulted-resources") {
			return fmt.Errorf("a pod of many containers: %.300w", err)
		}
		return nil
	})
	before.Status.Message = "it runs"
	if before, err = client.CoreV1().Pods("default").UpdateStatus(t.Context(), before, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("the status of a pod that was there: %.300v", err)
	}
	before.Labels = map[string]string{"a": "b"}
	if _, err := client.CoreV1().Pods("default").Update(t.Context(), before, metav1.UpdateOptions{}); err != nil {
		t.Errorf("labels of a pod that was there: %.300v", err)
	}
}
