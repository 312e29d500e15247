// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// D3: a tenant that fills its store is told so, can delete what is there, also
// what takes an update to be deleted, and then goes on.
func TestAFullStoreSaysSoAndRecovers(t *testing.T) {
	c := config(t, "full")
	c.StoreBytes = 12 << 20
	p := start(t, c)
	client := clientset(t, p.Loopback())
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "held", Labels: map[string]string{"big": ""}, Finalizers: []string{"example.com/held"}}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var refused error
	for i := 0; refused == nil && i < 200; i++ {
		_, refused = client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("big-", i), Labels: map[string]string{"big": ""}},
			Data:       map[string]string{"k": strings.Repeat("x", 200<<10)},
		}, metav1.CreateOptions{})
	}
	status, ok := refused.(apierrors.APIStatus)
	if !ok || status.Status().Code != http.StatusInsufficientStorage {
		t.Fatalf("the store takes all, or refuses with %v", refused)
	}
	for _, word := range []string{"full", "delete", "12Mi"} {
		if !strings.Contains(refused.Error(), word) {
			t.Errorf("%q does not say %q", refused, word)
		}
	}
	// Server-side apply creates by updating.
	_, err := client.CoreV1().ConfigMaps("default").Patch(t.Context(), "applied", types.ApplyPatchType,
		[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}`), metav1.PatchOptions{FieldManager: "test"})
	if err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("apply to a full store: %v", err)
	}
	grown := []byte(`{"data":{"k":"` + strings.Repeat("x", 20<<10) + `"}}`)
	if _, err := client.CoreV1().ConfigMaps("default").Patch(t.Context(), "held", types.MergePatchType, grown, metav1.PatchOptions{}); err == nil {
		t.Error("an object of a full store may grow")
	}
	if _, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 1}); err != nil {
		t.Errorf("a full store is not read: %v", err)
	}
	// What is deleted takes space until it is compacted, so that an update may have to be tried again, as the error says.
	eventually(t, func() error {
		return client.CoreV1().ConfigMaps("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "big"})
	})
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	eventually(t, func() error {
		_, err := client.CoreV1().ConfigMaps("default").Patch(t.Context(), "held", types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	eventually(t, func() error {
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, metav1.CreateOptions{})
		return err
	})
	if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the held object: %v", err)
	}
}
