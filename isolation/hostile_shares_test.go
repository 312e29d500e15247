// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/crds"
	"github.com/berth-dev/berth/api/v1alpha1"
)

// T6, X6, M4: a space's account writes no SharedObject that keeps the space from being deleted, or on which a controller of the host
// acts, neither at once nor by an update.
func TestHostileSharedObjectsAreRefusedByTheHost(t *testing.T) {
	g := startPolicedHost(t)
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range definitions {
		if definition.Spec.Names.Kind != "SharedObject" {
			continue
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(definition)
		if err != nil {
			t.Fatal(err)
		}
		made := &unstructured.Unstructured{Object: content}
		made.SetAPIVersion("apiextensions.k8s.io/v1")
		made.SetKind("CustomResourceDefinition")
		if err := g.admin.Create(t.Context(), made); err != nil {
			t.Fatal(err)
		}
	}
	shared := func() *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"scope": "Children", "object": map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "web", "name": "a"}},
		}}}
		object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SharedObject"))
		object.SetNamespace("berth-mine")
		object.SetName("shared-00")
		object.SetLabels(map[string]string{"berth.dev/space": "mine", "app.kubernetes.io/managed-by": "berth"})
		return object
	}
	good := shared()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err = g.account.Create(ctx, good)
		return err == nil, nil
	}); err != nil {
		t.Fatalf("what Berth writes is refused: %v", err)
	}
	for what, change := range map[string]func(*unstructured.Unstructured){
		"finalizer": func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/stay"}) },
		"finalizer of the garbage collector": func(o *unstructured.Unstructured) {
			o.SetFinalizers([]string{metav1.FinalizerDeleteDependents})
		},
		"owner": func(o *unstructured.Unstructured) {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "none"}})
		},
		"annotation": func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"berth.dev/any": "x"}) },
		"label":      func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"berth.dev/any": "x"}) },
		"manager": func(o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "helm"})
		},
		"label of a space": func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"berth.dev/space": "theirs"}) },
	} {
		created, updated := shared(), good.DeepCopy()
		created.SetName("shared-01")
		change(created)
		change(updated)
		for how, err := range map[string]error{"create": g.account.Create(t.Context(), created), "update": g.account.Update(t.Context(), updated)} {
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "'berth-space-shares'") {
				t.Errorf("%s with a bad %s: %v", how, what, err)
			}
		}
	}
	elsewhere := shared()
	elsewhere.SetNamespace("berth-theirs")
	if err := g.account.Create(t.Context(), elsewhere); !apierrors.IsForbidden(err) {
		t.Errorf("in the namespace of another space: %v", err)
	}
	change := good.DeepCopy()
	if err := unstructured.SetNestedField(change.Object, "Descendants", "spec", "scope"); err != nil {
		t.Fatal(err)
	}
	if err := g.account.Update(t.Context(), change); err != nil {
		t.Errorf("a change of the scope: %v", err)
	}
	if err := g.account.Delete(t.Context(), change); err != nil {
		t.Errorf("its deletion: %v", err)
	}
	if err := g.admin.Get(t.Context(), client.ObjectKeyFromObject(good), good); !apierrors.IsNotFound(err) {
		t.Errorf("after that, it is there: %v", err)
	}
}
