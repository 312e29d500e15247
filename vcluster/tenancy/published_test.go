// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
)

func publish(namespaces v1alpha1.PublicationNamespaces, manifest map[string]any) access.Published {
	return access.Published{Object: &unstructured.Unstructured{Object: manifest}, Publication: "policies", Namespaces: namespaces}
}

func configMap(namespace, name, value string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": namespace, "name": name, "resourceVersion": "7", "uid": "x", "finalizers": []any{"example.com/x"}},
		"data": map[string]any{"key": value},
	}
}

func definition() map[string]any {
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			}}}},
		},
	}
}

// P1: copies are made where they belong, also of resources whose definition is published, follow their sources, and go.
func TestPublishedObjectsAreCopied(t *testing.T) {
	widget := map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "any", "name": "w"}, "spec": map[string]any{"size": int64(1)}}
	state := capsule()
	state.Published = []access.Published{
		publish(v1alpha1.EveryNamespace, widget), publish("", definition()),
		publish(v1alpha1.SameNamespace, configMap("web", "same", "one")), publish(v1alpha1.EveryNamespace, configMap("web", "every", "one")),
	}
	e := startEnv(t, state)
	admin := e.admin()
	// One was there before.
	if _, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "late", Finalizers: []string{"example.com/hold"}}, Data: map[string]string{"own": "x"}, Immutable: ptr.To(true),
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := createNamespace(t, admin, "web"); err != nil {
		t.Fatal(err)
	}
	value := func(namespace, name, want string) {
		t.Helper()
		eventually(t, func() error {
			c, err := e.admin().CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if want == "" && apierrors.IsNotFound(err) {
				return nil
			}
			if err != nil || c.Data["key"] != want || len(c.Data) != 1 || c.Labels[v1alpha1.LabelPublication] != "policies" || len(c.Finalizers) > 0 {
				return fmt.Errorf("%s/%s is %+v: %w", namespace, name, c, errOr(err))
			}
			return nil
		})
	}
	value("web", "same", "one")
	value("default", "same", "")
	value("web", "every", "one")
	value("default", "every", "one")
	objects, err := dynamic.NewForConfig(e.plane.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	eventually(t, func() error {
		_, err := objects.Resource(widgets).Namespace("web").Get(t.Context(), "w", metav1.GetOptions{})
		return err
	})
	next := *state
	next.Published = []access.Published{
		publish(v1alpha1.SameNamespace, configMap("web", "same", "two")), publish(v1alpha1.SameNamespace, configMap("default", "late", "two")),
	}
	e.source.Set(&next)
	value("web", "same", "two")
	value("web", "every", "")
	value("default", "every", "")
	value("default", "late", "two")
	eventually(t, func() error {
		_, err := objects.Resource(widgets).Namespace("web").Get(t.Context(), "w", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return errOr(err)
		}
		return nil
	})
	// What is published can't be read for a while, and the space sleeps meanwhile.
	for _, label := range []string{"asleep", "awake"} {
		unknown := *state
		unknown.Published, unknown.PublishedUnknown, unknown.Namespaces.Labels = nil, true, map[string]string{"pass": label}
		if label == "asleep" {
			e.sleepAndWake(func() { e.source.Set(&unknown) })
		} else {
			e.source.Set(&unknown)
		}
		eventually(t, func() error {
			web, err := e.admin().CoreV1().Namespaces().Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil || web.Labels["pass"] != label {
				return fmt.Errorf("its labels are %v: %w", web.Labels, errOr(err))
			}
			return nil
		})
		value("web", "same", "two")
		value("default", "late", "two")
	}
	// The source goes while the space sleeps.
	e.sleepAndWake(func() { e.source.Set(&access.State{Space: "solar"}) })
	value("web", "same", "")
	value("default", "late", "")
	eventually(t, func() error {
		left, err := e.admin().CoreV1().ConfigMaps("kube-system").List(t.Context(), metav1.ListOptions{})
		if err != nil || slices.ContainsFunc(left.Items, func(c corev1.ConfigMap) bool { return strings.HasPrefix(c.Name, "berth-") }) {
			return fmt.Errorf("%v is left: %w", left, errOr(err))
		}
		return nil
	})
}

// P1, H8: a copy that the space's API server rejects doesn't take the place of an object of the tenant, and keeps no other copy away.
func TestAnInvalidCopyReplacesNothing(t *testing.T) {
	e := startEnv(t, &access.State{Space: "solar"})
	maps := e.admin().CoreV1().ConfigMaps("default")
	own, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "same"}, Data: map[string]string{"own": "yes"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	invalid := configMap("default", "same", "")
	invalid["data"] = map[string]any{"no key!": "x"}
	state := capsule()
	state.Published = []access.Published{publish(v1alpha1.SameNamespace, invalid), publish(v1alpha1.SameNamespace, configMap("default", "valid", "one"))}
	e.source.Set(state)
	eventually(t, func() error {
		_, err := maps.Get(t.Context(), "valid", metav1.GetOptions{})
		return err
	})
	e.sleepAndWake(func() {})
	still, err := e.admin().CoreV1().ConfigMaps("default").Get(t.Context(), "same", metav1.GetOptions{})
	if err != nil || still.UID != own.UID || still.Data["own"] != "yes" {
		t.Errorf("the object of the tenant is %v: %v", still, err)
	}
}
