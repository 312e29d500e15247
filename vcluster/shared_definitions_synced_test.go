// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/berth-dev/berth/api/space/v1alpha1"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/translate"
)

// syncedWidgets forces the definition of a host on spaces, because widgets are synced.
func syncedWidgets(t *testing.T) *definitions.Shared {
	t.Helper()
	c := config(t, "host")
	c.Access = nil
	shared, err := definitions.ForSync(newTenantOf(t, start(t, c)).define(t, hostWidgets()), "v1")
	if err != nil {
		t.Fatal(err)
	}
	return shared
}

// TestASyncedKindIsForcedBeforeTheSharesAreKnown restarts a space whose platform can't read the CRDShares (C3).
func TestASyncedKindIsForcedBeforeTheSharesAreKnown(t *testing.T) {
	t.Parallel()
	synced, source := syncedWidgets(t), &definitions.Source{}
	c := config(t, "unshared")
	c.Definitions = source.WithSynced(synced)
	for range 2 {
		space := start(t, c)
		if crd := newTenantOf(t, space).crd(t); !definitions.IsShared(crd) || len(crd.Annotations) > 0 {
			t.Errorf("the definition is %+v", crd.ObjectMeta)
		}
		stop(t, space)
	}
	optional := &definitions.Shared{CRD: shared(t, hostWidgets()), InRange: true}
	source.Set(definitions.NewSet("", optional))
	space := start(t, c)
	waitForReason(t, space, definitions.Forced)
	client, err := dynamic.NewForConfig(space.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	match, err := client.Resource(v1alpha1.GroupVersion.WithResource("crdmatches")).Get(t.Context(), widgetsCRD, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status, _, _ := unstructured.NestedStringMap(match.Object, "status")
	if diff := cmp.Diff(map[string]string{
		"inForce": "Shared", "mode": "Forced", "reason": "Forced", "message": "the platform forces its definition, because it syncs these objects with the host",
	}, status); diff != "" {
		t.Errorf("the match (-want +got):\n%s", diff)
	}
	if crd := newTenantOf(t, space).crd(t); crd.Annotations[definitions.AnnotationShare] != "the-share" {
		t.Errorf("the definition isn't that of the share: %+v", crd.ObjectMeta)
	}
}

// TestAFullStoreKeepsObjectsOfACopiedDefinition upgrades a space whose store is too full to move objects. It starts,
// and nobody takes the objects for deleted. They are moved when it is no longer full (C5, M4).
func TestAFullStoreKeepsObjectsOfACopiedDefinition(t *testing.T) {
	t.Parallel()
	c := config(t, "full-upgrade")
	c.StoreBytes = 12 << 20
	space := start(t, c)
	tenant, maps := newTenantOf(t, space), clientset(t, space.Loopback()).CoreV1().ConfigMaps("default")
	copied := hostWidgets()
	copied.Labels = map[string]string{translate.LabelManagedBy: translate.ManagedBy}
	tenant.define(t, copied)
	var widgets []*unstructured.Unstructured
	for i := range 3 {
		w := widget(fmt.Sprint("w-", i), map[string]any{})
		w.SetAnnotations(map[string]string{"example.com/large": strings.Repeat("x", 250<<10)})
		w, err := tenant.widgets.Create(t.Context(), w, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		widgets = append(widgets, w)
	}
	var full error
	for i := 0; full == nil && i < 200; i++ {
		_, full = maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("big-", i), Labels: map[string]string{"big": ""}}, Data: map[string]string{"k": strings.Repeat("x", 200<<10)},
		}, metav1.CreateOptions{})
	}
	if full == nil {
		t.Fatal("the store is never full")
	}
	stop(t, space)

	var source *definitions.Source
	c.Definitions = source.WithSynced(syncedWidgets(t))
	space = start(t, c)
	tenant, maps = newTenantOf(t, space), clientset(t, space.Loopback()).CoreV1().ConfigMaps("default")
	if crd := tenant.crd(t); !definitions.IsShared(crd) {
		t.Errorf("the definition is %+v", crd.ObjectMeta)
	}
	_, got := tenant.widgets.Get(t.Context(), "w-0", metav1.GetOptions{})
	_, listed := tenant.widgets.List(t.Context(), metav1.ListOptions{})
	_, watched := tenant.widgets.Watch(t.Context(), metav1.ListOptions{})
	_, created := tenant.widgets.Create(t.Context(), widget("new", map[string]any{}), metav1.CreateOptions{})
	for doing, err := range map[string]error{
		"get": got, "list": listed, "watch": watched, "create": created, "delete": tenant.widgets.Delete(t.Context(), "w-0", metav1.DeleteOptions{}),
	} {
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "delete objects of other kinds") {
			t.Errorf("%s: %v, want that the objects can't be used yet", doing, err)
		}
	}
	eventually(t, func() error {
		return maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "big"})
	})
	eventually(t, func() error {
		_, err := tenant.widgets.List(t.Context(), metav1.ListOptions{})
		return err
	})
	for _, want := range widgets {
		got, err := tenant.widgets.Get(t.Context(), want.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		ignoreVersion := cmpopts.IgnoreMapEntries(func(key string, _ any) bool { return key == "resourceVersion" })
		if diff := cmp.Diff(want.Object, got.Object, ignoreVersion); diff != "" {
			t.Errorf("%s changed (-before +after):\n%s", want.GetName(), diff)
		}
	}
	stop(t, space)
	c.Definitions = nil
	tenant = newTenantOf(t, start(t, c))
	eventually(t, func() error {
		if _, err := tenant.crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), widgetsCRD, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the copied definition is still there"), err)
		}
		return nil
	})
}
