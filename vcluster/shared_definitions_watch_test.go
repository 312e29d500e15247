// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/berth-dev/berth/api/space/v1alpha1"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/vcluster"
)

func (o tenantOf) get(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	object, err := o.widgets.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func (o tenantOf) crd(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd, err := o.crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), widgetsCRD, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return crd
}

// checkExpired checks that a watch ends with the event that makes clients list again.
func checkExpired(t *testing.T, w watch.Interface) {
	t.Helper()
	limit := time.After(testTimeout)
	for {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				t.Error("the watch ended without an error, want one that makes its client list again")
				return
			}
			if event.Type != watch.Error {
				continue
			}
			if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) {
				t.Errorf("the watch ended with %v, want that it is expired", err)
			}
			return
		case <-limit:
			t.Error("the watch goes on")
			return
		}
	}
}

// waitForReason waits until the definition of widgets in force is that for a reason, which says that a set has taken effect.
func waitForReason(t *testing.T, space *vcluster.ControlPlane, want definitions.Reason) {
	t.Helper()
	client, err := dynamic.NewForConfig(space.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		match, err := client.Resource(v1alpha1.GroupVersion.WithResource("crdmatches")).Get(t.Context(), widgetsCRD, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got, _, _ := unstructured.NestedString(match.Object, "status", "reason"); got != string(want) {
			return fmt.Errorf("the definition in force is so because of %s, want %s", got, want)
		}
		return nil
	})
}

// next returns the next event of a watch, and its revision.
func next(t *testing.T, w watch.Interface) (watch.Event, int64) {
	t.Helper()
	select {
	case event, ok := <-w.ResultChan():
		if !ok || event.Type == watch.Error {
			t.Fatalf("the watch ended with %v", event.Object)
		}
		object, err := apimeta.Accessor(event.Object)
		if err != nil {
			t.Fatal(err)
		}
		revision, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return event, revision
	case <-time.After(testTimeout):
		t.Fatal("the watch reports nothing")
	}
	return watch.Event{}, 0
}

// TestAWatchCanContinueAfterTheEndOfATenantsDefinition deletes a definition of a tenant that a shared one replaces. A watch that begins
// with the last event does not report what came before (C2).
func TestAWatchCanContinueAfterTheEndOfATenantsDefinition(t *testing.T) {
	t.Parallel()
	c := config(t, "continuing")
	c.Definitions = &definitions.Source{}
	c.Definitions.Set(definitions.NewSet("", &definitions.Shared{CRD: shared(t, hostWidgets()), InRange: true}))
	tenant := newTenantOf(t, start(t, c))
	api := tenant.crds.ApiextensionsV1().CustomResourceDefinitions()
	list, err := api.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := api.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Stop()
	tenant.define(t, localWidgets())
	if err := api.Delete(t.Context(), widgetsCRD, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var last, revision int64
	for seen := false; !seen; {
		var event watch.Event
		event, revision = next(t, first)
		if revision < last {
			t.Errorf("%s has the revision %d, and follows one of %d", event.Type, revision, last)
		}
		last = revision
		crd, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition)
		seen = ok && definitions.IsShared(crd)
	}
	second, err := api.Watch(t.Context(), metav1.ListOptions{ResourceVersion: strconv.FormatInt(revision, 10)})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Stop()
	if _, err := api.Create(t.Context(), named("Ant", "tenant"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	event, _ := next(t, second)
	if crd, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition); !ok || crd.Spec.Names.Plural != "ants" {
		t.Errorf("the watch from the last event repeats %s %v", event.Type, event.Object)
	}
}

// TestHostileEventsOfDefinitionsAreInOrder changes definitions of the tenant while shared ones come and go. The revision of an event
// promises that the watch has reported all earlier changes (C2).
func TestHostileEventsOfDefinitionsAreInOrder(t *testing.T) {
	t.Parallel()
	const switches = 100
	optional := &definitions.Shared{CRD: shared(t, hostWidgets()), InRange: true}
	c := config(t, "ordering")
	c.Definitions = &definitions.Source{}
	tenant := newTenantOf(t, start(t, c))
	api := tenant.crds.ApiextensionsV1().CustomResourceDefinitions()
	kinds := []string{"Ant", "Bee", "Cow"}
	for _, kind := range kinds {
		tenant.define(t, named(kind, "tenant"))
	}
	list, err := api.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := api.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	var changing sync.WaitGroup
	defer changing.Wait()
	defer cancel()
	for _, kind := range kinds {
		changing.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				patch := fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, i)
				if _, err := api.Patch(ctx, named(kind, "").Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && ctx.Err() == nil {
					t.Errorf("change a definition: %v", err)
				}
			}
		})
	}
	var last int64
	var before string
	for i := range switches {
		set := definitions.NewSet("", optional)
		want := watch.Modified
		if i%2 > 0 {
			set, want = nil, watch.Deleted
		}
		c.Definitions.Set(set)
		for seen := false; !seen; {
			event, revision := next(t, events)
			crd, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition)
			if !ok {
				t.Fatalf("the watch reports %v", event)
			}
			what := string(event.Type) + " " + crd.Name
			if revision < last {
				t.Fatalf("%s has the revision %d, and follows %s of %d", what, revision, before, last)
			}
			last, before = revision, what
			seen = event.Type == want && crd.Name == widgetsCRD
		}
	}
}

// TestAWakeWithoutAChangeKeepsWatches has a space sleep while nothing is shared anew. Watches continue where they were (C5, U6).
func TestAWakeWithoutAChangeKeepsWatches(t *testing.T) {
	t.Parallel()
	c := config(t, "waking")
	c.Definitions = &definitions.Source{}
	c.Definitions.Set(definitions.NewSet("", &definitions.Shared{CRD: shared(t, hostWidgets()), InRange: true}))
	space := start(t, c)
	tenant := newTenantOf(t, space)
	tenant.waitForSize(t, true)
	tenant.define(t, named("Ant", "tenant"))
	antsOf := func(space *vcluster.ControlPlane) dynamic.ResourceInterface {
		t.Helper()
		client, err := dynamic.NewForConfig(space.Loopback())
		if err != nil {
			t.Fatal(err)
		}
		return client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "ants"}).Namespace(metav1.NamespaceDefault)
	}
	var ants *unstructured.UnstructuredList
	eventually(t, func() (err error) {
		ants, err = antsOf(space).List(t.Context(), metav1.ListOptions{})
		return err
	})
	crds, err := tenant.crds.ApiextensionsV1().CustomResourceDefinitions().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for range 2 {
		stop(t, space)
		space = start(t, c)
	}
	tenant = newTenantOf(t, space)
	objects, err := antsOf(space).Watch(t.Context(), metav1.ListOptions{ResourceVersion: ants.GetResourceVersion()})
	if err != nil {
		t.Fatal("a watch of custom resources that are not shared: ", err)
	}
	defer objects.Stop()
	changes, err := tenant.crds.ApiextensionsV1().CustomResourceDefinitions().Watch(t.Context(), metav1.ListOptions{ResourceVersion: crds.ResourceVersion})
	if err != nil {
		t.Fatal("a watch of definitions: ", err)
	}
	defer changes.Stop()
	ant := widget("one", map[string]any{})
	ant.SetKind("Ant")
	eventually(t, func() error {
		_, err := antsOf(space).Create(t.Context(), ant, metav1.CreateOptions{})
		return err
	})
	next(t, objects)
	tenant.define(t, named("Bee", "tenant"))
	next(t, changes)
}

// TestAListOfThePastIsOfItsDefinitions lists as of before a switch (C5).
func TestAListOfThePastIsOfItsDefinitions(t *testing.T) {
	t.Parallel()
	optional := &definitions.Shared{CRD: shared(t, hostWidgets()), InRange: true}
	c := config(t, "past")
	c.Definitions = &definitions.Source{}
	tenant := newTenantOf(t, start(t, c))
	tenant.define(t, localWidgets())
	api := tenant.crds.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := tenant.widgets.Create(t.Context(), widget("red", map[string]any{"color": "red"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := api.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	past := map[string]metav1.ListOptions{
		"exactly": {ResourceVersion: list.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
		"a page":  {ResourceVersion: list.ResourceVersion, Limit: 1},
	}
	check := func(expired bool) {
		t.Helper()
		for what, options := range past {
			_, definitionsErr := api.List(t.Context(), options)
			_, objectsErr := tenant.widgets.List(t.Context(), options)
			for of, err := range map[string]error{"definitions": definitionsErr, "objects": objectsErr} {
				if !expired && err != nil || expired && !apierrors.IsResourceExpired(err) {
					t.Errorf("list %s of the past, %s: %v, want that it is expired: %v", of, what, err, expired)
				}
			}
		}
	}
	check(false)
	c.Definitions.Set(definitions.NewSet(definitions.SystemCRDFirst, optional))
	tenant.waitForSize(t, true)
	check(true)
}
