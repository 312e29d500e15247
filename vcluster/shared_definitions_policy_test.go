// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/space/v1alpha1"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/vcluster"
)

// choose writes the CRDPolicy of a space.
func choose(t *testing.T, space *vcluster.ControlPlane, policy string) {
	t.Helper()
	client, err := dynamic.NewForConfig(space.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "access.berth.dev/v1alpha1", "kind": "CRDPolicy", "metadata": map[string]any{"name": "default"}, "spec": map[string]any{"policy": policy},
	}}
	_, err = client.Resource(v1alpha1.GroupVersion.WithResource("crdpolicies")).Apply(t.Context(), "default", object, metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil {
		t.Fatal(err)
	}
}

// TestATenantSwitchesDefinitionsByItsPolicy has a tenant choose with the object in its space. Objects of both definitions stay as they
// are, and the policy survives a restart (C4, C5).
func TestATenantSwitchesDefinitionsByItsPolicy(t *testing.T) {
	t.Parallel()
	optional := &definitions.Shared{CRD: shared(t, hostWidgets()), InRange: true}
	c := config(t, "choosing")
	c.Definitions = &definitions.Source{}
	c.Definitions.Set(definitions.NewSet("", optional))
	space := start(t, c)
	tenant := newTenantOf(t, space)
	tenant.waitForSize(t, true)
	own := tenant.define(t, localWidgets())
	tenant.waitForSize(t, false)
	red, err := tenant.widgets.Create(t.Context(), widget("red", map[string]any{"color": "red"}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	choose(t, space, "SystemCRDFirst")
	tenant.waitForSize(t, true)
	large, err := tenant.widgets.Create(t.Context(), widget("large", map[string]any{}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	check := func(want *unstructured.Unstructured, hidden string) {
		t.Helper()
		if diff := cmp.Diff(want, tenant.get(t, want.GetName())); diff != "" {
			t.Errorf("the object changed (-before +after):\n%s", diff)
		}
		if _, err := tenant.widgets.Get(t.Context(), hidden, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("get an object of the other definition: %v, want that it isn't found", err)
		}
	}
	check(large, "red")
	choose(t, space, "NeverUseSystemCRDUnlessForced")
	tenant.waitForSize(t, false)
	check(red, "large")
	if diff := cmp.Diff(own, tenant.crd(t)); diff != "" {
		t.Errorf("the tenant's definition changed (-before +after):\n%s", diff)
	}
	choose(t, space, "SystemCRDFirst")
	tenant.waitForSize(t, true)
	check(large, "red")

	stop(t, space)
	space = start(t, c)
	tenant = newTenantOf(t, space)
	if crd := tenant.crd(t); !definitions.IsShared(crd) {
		t.Error("after a restart, the definition in force is the tenant's, want the one that the policy prefers")
	}
	tenant.waitForSize(t, true)
	check(large, "red")
	choose(t, space, "LocalCRDFirst")
	tenant.waitForSize(t, false)
	check(red, "large")
}

// TestADryRunAnswersAsTheRequestWould tries what changes definitions (C3, C4).
func TestADryRunAnswersAsTheRequestWould(t *testing.T) {
	t.Parallel()
	served := shared(t, hostWidgets())
	c := config(t, "trying")
	c.Definitions = &definitions.Source{}
	tenant := newTenantOf(t, start(t, c))
	api := tenant.crds.ApiextensionsV1().CustomResourceDefinitions()
	dry := []string{metav1.DryRunAll}

	c.Definitions.Set(definitions.NewSet("", &definitions.Shared{CRD: served, InRange: true}))
	tenant.waitForSize(t, true)
	made, err := api.Create(t.Context(), localWidgets(), metav1.CreateOptions{DryRun: dry})
	if err != nil || definitions.IsShared(made) {
		t.Errorf("create what a shared definition doesn't hinder: %v, %v", made, err)
	}
	made, err = api.Patch(t.Context(), widgetsCRD, types.ApplyPatchType, encoded(t, localWidgets()), metav1.PatchOptions{FieldManager: "test", DryRun: dry})
	if err != nil || definitions.IsShared(made) || made.Spec.Versions[0].Subresources != nil {
		t.Errorf("apply what a shared definition doesn't hinder: %v, %v", made, err)
	}
	if _, err := api.Patch(t.Context(), widgetsCRD, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: dry}); !apierrors.IsForbidden(err) {
		t.Errorf("label a shared definition: %v, want that it is forbidden", err)
	}
	if err := api.Delete(t.Context(), widgetsCRD, metav1.DeleteOptions{DryRun: dry}); !apierrors.IsForbidden(err) {
		t.Errorf("delete a shared definition: %v, want that it is forbidden", err)
	}
	if !definitions.IsShared(tenant.crd(t)) {
		t.Error("a dry run has changed which definition is in force")
	}

	c.Definitions.Set(definitions.NewSet(definitions.SystemCRDFirst, &definitions.Shared{CRD: served, InRange: true}))
	eventually(t, func() error {
		if _, err := api.Create(t.Context(), localWidgets(), metav1.CreateOptions{DryRun: dry}); !apierrors.IsAlreadyExists(err) || !strings.Contains(err.Error(), "the-share") {
			return fmt.Errorf("create what the policy doesn't use: %w, want that it exists by the share", err)
		}
		return nil
	})

	c.Definitions.Set(definitions.NewSet("", &definitions.Shared{CRD: served, InRange: true, Forced: true}))
	eventually(t, func() error {
		if _, err := api.Create(t.Context(), localWidgets(), metav1.CreateOptions{DryRun: dry}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("create a forced definition: %w, want that it is forbidden", err)
		}
		return nil
	})
	changed := tenant.crd(t)
	changed.Spec.Names.ShortNames = []string{"w"}
	_, updated := api.Update(t.Context(), changed, metav1.UpdateOptions{DryRun: dry})
	_, applied := api.Patch(t.Context(), widgetsCRD, types.ApplyPatchType, encoded(t, localWidgets()), metav1.PatchOptions{FieldManager: "test", Force: ptr.To(true), DryRun: dry})
	for doing, err := range map[string]error{
		"update": updated, "apply": applied, "delete": api.Delete(t.Context(), widgetsCRD, metav1.DeleteOptions{DryRun: dry}),
	} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the-share") {
			t.Errorf("%s a forced definition: %v, want that it is forbidden by the share", doing, err)
		}
	}
}

// TestANamespaceLeavesNoHiddenObjects deletes namespaces with objects of definitions that are not in force, of the tenant and of the
// platform, whether it still shares its own or not. New namespaces with the same names have none, and others keep theirs.
func TestANamespaceLeavesNoHiddenObjects(t *testing.T) {
	t.Parallel()
	optional := &definitions.Shared{CRD: shared(t, hostWidgets()), InRange: true}
	c := config(t, "emptying")
	c.Definitions = &definitions.Source{}
	c.Definitions.Set(definitions.NewSet("", optional))
	space := start(t, c)
	tenant := newTenantOf(t, space)
	namespaces := clientset(t, space.Loopback()).CoreV1().Namespaces()
	all, err := dynamic.NewForConfig(space.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	create := func(namespace, name string) {
		t.Helper()
		object := widget(name, map[string]any{})
		object.SetFinalizers([]string{"example.com/held"}) // nobody can remove it while the definition is not in force
		if _, err := all.Resource(widgets).Namespace(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// renew deletes a namespace, and creates it again.
	renew := func(name string) {
		t.Helper()
		if err := namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		})
	}
	check := func(namespace string, want ...string) {
		t.Helper()
		var names []string
		list, err := all.Resource(widgets).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			names = append(names, list.Items[i].GetName())
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("objects in %s (-want +got):\n%s", namespace, diff)
		}
	}
	for _, name := range []string{"first", "second", "secondary"} {
		if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	tenant.waitForSize(t, true)
	for _, namespace := range []string{"first", "second", "secondary"} {
		create(namespace, "theirs")
	}
	c.Definitions.Set(nil) // the share ends
	eventually(t, func() error {
		if _, err := tenant.crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), widgetsCRD, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the definition is there"), err)
		}
		return nil
	})
	renew("first")
	tenant.define(t, localWidgets())
	create("first", "own")
	create("second", "own")
	create("secondary", "own")
	c.Definitions.Set(definitions.NewSet(definitions.SystemCRDFirst, optional))
	tenant.waitForSize(t, true)
	check("first")
	check("second", "theirs")
	if _, err := all.Resource(widgets).Namespace("second").Patch(t.Context(), "theirs", types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	renew("second")
	check("second")
	check("secondary", "theirs")
	c.Definitions.Set(definitions.NewSet(definitions.LocalCRDFirst, optional))
	tenant.waitForSize(t, false)
	check("first", "own")
	check("second")
	check("secondary", "own")
}
