// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcesyncs

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/crds"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/syncer/declaration"
)

// theHost is the host of all tests.
var theHost *testhost.Host //nolint:gochecknoglobals // set once, before the tests

func TestMain(m *testing.M) {
	os.Exit(testhost.Main(m, func() (*testhost.Host, error) {
		host, err := testhost.Start()
		theHost = host
		return host, err
	}))
}

// hostClient returns a client of the host.
func hostClient(t *testing.T) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, apiextensionsv1.AddToScheme, metav1.AddMetaToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(v1alpha1.GroupVersion.WithKind("ResourceSync"), meta.RESTScopeRoot)
	mapper.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), meta.RESTScopeRoot)
	config := rest.CopyConfig(theHost.Config())
	config.ContentType, config.AcceptContentTypes = "", ""
	host, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// C6: what the objects on the host say reaches spaces and statuses, from the first read on.
func TestSpacesFollowTheHost(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range definitions {
		if definition.Spec.Names.Kind == "ResourceSync" {
			if err := e.host.Create(t.Context(), definition); err != nil {
				t.Fatal(err)
			}
		}
	}
	is := e.sync("Gadget", v1alpha1.SyncFromHost)
	is.Spec.Tenants = []v1alpha1.CRDShareTenants{{Names: []string{"solar"}}}
	delete(e.s.syncs, is.Name) // it is watched in this test
	object := is.DeepCopy()
	object.UID, object.Generation = "", 0
	testhost.Eventually(t, "the host serves ResourceSyncs", func(ctx context.Context) error { return e.host.Create(ctx, object) })

	clear(e.s.listed)
	var mu sync.Mutex
	reported := map[string]int{}
	e.s.Observe(space("solar", "solar"))
	e.s.Observe(space("wind", "wind"))
	stop := e.s.Run(t.Context(), e.host, e.s.objects, func(space string) {
		mu.Lock()
		defer mu.Unlock()
		reported[space]++
	})
	defer stop()
	if got := e.s.Of("solar"); len(got) != 1 || got[0].Name != is.Name {
		t.Fatalf("when Run returns, the space has %v", got)
	}
	ready := func(want metav1.ConditionStatus, reason string) {
		t.Helper()
		testhost.Eventually(t, "the status", func(ctx context.Context) error {
			if err := e.host.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
			got := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionReady)
			if got == nil || got.Status != want || got.Reason != reason || object.Status.ObservedGeneration != object.Generation {
				return fmt.Errorf("of generation %d, observed %d: %+v", object.Generation, object.Status.ObservedGeneration, got)
			}
			return nil
		})
	}
	ready(metav1.ConditionTrue, v1alpha1.ReasonSyncing)
	object.Spec.Tenants[0].Names = []string{"wind"}
	if err := e.host.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "the other space has it", func(context.Context) error {
		if len(e.s.Of("solar")) != 0 || len(e.s.Of("wind")) != 1 {
			return fmt.Errorf("solar has %v, wind has %v", e.s.Of("solar"), e.s.Of("wind"))
		}
		return nil
	})
	ready(metav1.ConditionTrue, v1alpha1.ReasonSyncing)
	object.Spec.Fields = append(object.Spec.Fields, v1alpha1.SyncedField{Path: "spec.absent"})
	if err := e.host.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	ready(metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec)
	testhost.Eventually(t, "no space has it", func(context.Context) error {
		if got := e.s.Of("wind"); len(got) != 0 {
			return fmt.Errorf("wind has %v", got)
		}
		return nil
	})
	stop()
	mu.Lock()
	defer mu.Unlock()
	if reported["solar"] != 2 || reported["wind"] != 2 {
		t.Errorf("spaces are reported this often: %v, want 2 for each", reported)
	}
}

// C6: what the platform does first is bounded, even if the host gives it nothing.
func TestTheStartWaitsForALimitedTime(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	clear(e.s.listed)
	e.s.options.Forces = func(string) (forced, known bool) { return false, false }
	e.sync("Gadget", v1alpha1.SyncToHost)
	e.s.listed[listOfSyncs] = true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stop := e.s.Run(ctx, e.host, e.s.objects, func(string) {})
	stop()
	if got := e.s.Of("solar"); len(got) != 0 {
		t.Errorf("the space has %v", got)
	}
}

func names(all []*declaration.Declaration) (names []string) {
	for _, d := range all {
		names = append(names, d.Name)
	}
	return names
}
