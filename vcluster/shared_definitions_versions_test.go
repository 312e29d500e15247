// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/definitions"
)

// TestObjectsOutliveAVersionOfASharedDefinition drops, on the host, the version in which a space has stored objects. The host doesn't know
// that there are any.
func TestObjectsOutliveAVersionOfASharedDefinition(t *testing.T) {
	t.Parallel()
	sharing := func(crd *apiextensionsv1.CustomResourceDefinition, stored ...string) *definitions.Set {
		return definitions.NewSet("", &definitions.Shared{CRD: shared(t, crd, stored...), InRange: true})
	}
	c := config(t, "upgraded")
	c.Definitions = &definitions.Source{}
	c.Definitions.Set(sharing(hostWidgets()))
	space := start(t, c)
	tenant := newTenantOf(t, space)
	client := clientset(t, space.Loopback())
	objects, err := dynamic.NewForConfig(space.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "old"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tenant.waitForSize(t, true)
	for namespace, name := range map[string]string{"default": "one", "old": "two"} {
		if _, err := objects.Resource(widgets).Namespace(namespace).Create(t.Context(), widget(name, map[string]any{"size": int64(5)}), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	upgraded := hostWidgets()
	upgraded.Spec.Versions[0].Name = "v2"
	c.Definitions.Set(sharing(upgraded, "v1", "v2"))
	v2 := widgets.GroupResource().WithVersion("v2")
	eventually(t, func() error {
		one, err := objects.Resource(v2).Namespace("default").Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if spec := fmt.Sprint(one.Object["spec"]); one.GetAPIVersion() != "example.com/v2" || spec != "map[size:5]" {
			t.Errorf("the object is %s of %s", spec, one.GetAPIVersion())
		}
		return nil
	})
	if _, err := tenant.widgets.Get(t.Context(), "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the version that the host doesn't have is served: %v", err)
	}
	if err := objects.Resource(v2).Namespace("default").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := client.CoreV1().Namespaces().Delete(t.Context(), "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return namespaceGone(t, client, "old") })
}

func namespaceGone(t *testing.T, client kubernetes.Interface, namespace string) error {
	t.Helper()
	n, err := client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("the namespace is there: %+v", n.Status.Conditions)
}

// TestATenantAppliesADefinitionOverASharedOne applies definitions as kubectl does, which compares with the one in force.
func TestATenantAppliesADefinitionOverASharedOne(t *testing.T) {
	t.Parallel()
	host := hostWidgets()
	host.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm"}
	host.Annotations = map[string]string{"meta.helm.sh/release-name": "of-the-host"}
	c := config(t, "applying")
	c.Definitions = &definitions.Source{}
	c.Definitions.Set(definitions.NewSet("", &definitions.Shared{CRD: shared(t, host), InRange: true}))
	tenant := newTenantOf(t, start(t, c))
	api := tenant.crds.ApiextensionsV1().CustomResourceDefinitions()
	tenant.waitForSize(t, true)
	apply := func(patch map[string]any) (*apiextensionsv1.CustomResourceDefinition, error) {
		raw, err := json.Marshal(patch)
		if err != nil {
			t.Fatal(err)
		}
		return api.Patch(t.Context(), widgetsCRD, types.MergePatchType, raw, metav1.PatchOptions{})
	}
	applied := map[string]any{"annotations": map[string]any{corev1.LastAppliedConfigAnnotation: "{}"}}

	_, err := apply(map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "create or apply it") {
		t.Errorf("label it: %v, want that it is forbidden, and what to do", err)
	}
	for what, patch := range map[string]map[string]any{
		"the same":      {"metadata": applied},
		"another scope": {"metadata": applied, "spec": map[string]any{"scope": "Cluster"}},
		"another kind":  {"metadata": applied, "spec": map[string]any{"names": map[string]any{"kind": "Wodget", "listKind": "WodgetList", "singular": "wodget"}}},
	} {
		own, err := apply(patch)
		if err != nil {
			t.Errorf("apply %s: %v", what, err)
			continue
		}
		if definitions.IsShared(own) || len(own.Labels) != 0 || len(own.Annotations) != 1 {
			t.Errorf("apply %s: the definition is %+v", what, own.ObjectMeta)
		}
		eventually(t, func() error {
			crd, err := api.Get(t.Context(), widgetsCRD, metav1.GetOptions{})
			if err != nil || !established(crd) {
				return errors.Join(err, errors.New("it is not established"))
			}
			return nil
		})
		if err := api.Delete(t.Context(), widgetsCRD, metav1.DeleteOptions{}); err != nil {
			t.Errorf("apply %s, and delete it: %v", what, err)
		}
		tenant.waitForSize(t, true)
	}
}

// TestAForcedDefinitionDoesNotLapseWithAPlatform restarts a space before its platform knows what it shares (C3).
func TestAForcedDefinitionDoesNotLapseWithAPlatform(t *testing.T) {
	t.Parallel()
	forced := definitions.NewSet("", &definitions.Shared{CRD: shared(t, hostWidgets()), Forced: true, InRange: true})
	c := config(t, "restarted")
	c.Definitions = &definitions.Source{}
	space := start(t, c)
	newTenantOf(t, space).define(t, localWidgets())
	c.Definitions.Set(forced)
	newTenantOf(t, space).waitForSize(t, true)
	stop(t, space)

	source := &definitions.Source{} // of a new platform
	c.Definitions = source
	var known atomic.Bool
	timer := time.AfterFunc(time.Second, func() {
		known.Store(true)
		source.Set(forced)
	})
	defer timer.Stop()
	space = start(t, c)
	if !known.Load() {
		t.Error("the space runs before it is known what is forced on it")
	}
	if match, err := newTenantOf(t, space).crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), widgetsCRD, metav1.GetOptions{}); err != nil || !definitions.IsShared(match) {
		t.Errorf("the definition in force is %v, %v, want the platform's", match, err)
	}
}
