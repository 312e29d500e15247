// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// L3: values that are matched for seconds are matched one after the other, though their clients have gone; reads and deletions of
// the space don't wait for them, and in the end everything is given back.
func TestHostileValuesThatAreMatchedForLongWaitForEachOther(t *testing.T) {
	account, _, config := bounded(t, nil)
	definitions, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	d := definition("slow", 1)
	d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{
		"x": {Type: "string", Pattern: "(?:a?){1000}(?:a?){240}b"},
	}
	if _, err := definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	slow := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "slows"}).Namespace("default")
	object := func(name string, length int) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "slow", "metadata": map[string]any{"name": name}, "x": strings.Repeat("a", length) + "b",
		}}
	}
	eventually(t, func() error {
		_, err := slow.Create(t.Context(), object("first", 1), metav1.CreateOptions{})
		return err
	})
	var left sync.WaitGroup
	for i := range 10 {
		ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		left.Go(func() {
			defer leave()
			_, err := slow.Create(ctx, object(fmt.Sprintf("slow-%d", i), 20_000), metav1.CreateOptions{})
			if err == nil {
				t.Error("a value was matched at once: it says nothing")
			}
		})
	}
	left.Wait()
	reader := clientset(t, config)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	if _, err := reader.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a list: %v", err)
	}
	if err := slow.Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Errorf("a deletion: %v", err)
	}
	eventually(t, func() error {
		_, err := reader.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	eventually(t, func() error {
		if held := account.Memory(); held != 0 {
			return fmt.Errorf("%d bytes are held", held)
		}
		return nil
	})
}
