// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/test/integration/etcd"

	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/informer"
)

// Informers read the store; what they show must be what the API shows, of every
// kind, whether it was there before them or came later. Upstream keeps a sample
// of each kind.
func TestInformersShowWhatTheAPIShows(t *testing.T) {
	c := config(t, "informers")
	c.Access = nil      // it shows all that there is (U6)
	c.Controllers = nil // nobody changes the samples
	p := start(t, c)
	kinds := servedKinds(t, p)
	if len(kinds) < 45 {
		t.Errorf("there are informers of only %d kinds", len(kinds))
	}
	early := watchAll(t, p.Informers(), kinds)

	dyn, err := dynamic.NewForConfig(p.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	const namespace = "samples"
	create := func(gvr schema.GroupVersionResource, stub string) error {
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(stub), &object.Object); err != nil {
			return err
		}
		object.SetGroupVersionKind(kinds[gvr].gvk)
		resource := dynamic.ResourceInterface(dyn.Resource(gvr))
		if kinds[gvr].namespaced {
			resource = dyn.Resource(gvr).Namespace(namespace)
		}
		_, err := resource.Create(t.Context(), object, metav1.CreateOptions{})
		return err
	}
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	accounts := schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	for _, first := range []struct {
		gvr  schema.GroupVersionResource
		stub string
	}{
		{namespaces, `{"metadata":{"name":"samples"}}`}, {accounts, `{"metadata":{"name":"default"}}`},
		{schema.GroupVersionResource{Version: "v1", Resource: "services"}, `{"metadata":{"name":"elsewhere"},"spec":{"type":"ExternalName","externalName":"example.com"}}`},
		{schema.GroupVersionResource{Version: "v1", Resource: "services"}, `{"metadata":{"name":"headless"},"spec":{"clusterIP":"None"}}`},
	} {
		if err := create(first.gvr, first.stub); err != nil {
			t.Fatal(err)
		}
	}
	made := 0
	for gvr, sample := range etcd.GetEtcdStorageDataForNamespace(namespace) {
		if _, ok := kinds[gvr]; !ok {
			continue
		}
		if err := create(gvr, sample.Stub); err != nil {
			t.Logf("without a sample of %v: %v", gvr, err)
			continue
		}
		made++
	}
	if made < 35 {
		t.Errorf("there are samples of only %d kinds", made)
	}
	compareAll(t, p, early)
	stop(t, p)

	p = start(t, c)
	compareAll(t, p, watchAll(t, p.Informers(), kinds))
}

// Upstream's controllers do nothing until their index is as new as what they
// wrote, and a write that changed nothing may be older than the index.
func TestAnInformersIndexIsAsNewAsTheStore(t *testing.T) {
	c := config(t, "index-revision")
	c.Controllers = nil
	p := start(t, c)
	configMaps := clientset(t, p.Loopback()).CoreV1().ConfigMaps("default")
	var newest string
	for _, name := range []string{"listed-last", "a-listed-first"} {
		made, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		newest = made.ResourceVersion
	}
	view := p.Informers()
	index := view.Core().V1().ConfigMaps().Informer().GetStore()
	view.Start(t.Context().Done())
	view.WaitForCacheSync(t.Context().Done())
	if older, err := resourceversion.CompareResourceVersion(index.LastStoreSyncResourceVersion(), newest); err != nil || older < 0 {
		t.Errorf("the index is of revision %q, and holds what was written at %s (%v)", index.LastStoreSyncResourceVersion(), newest, err)
	}
}

type servedKind struct {
	gvk        schema.GroupVersionKind
	namespaced bool
}

// servedKinds returns the resources that can be watched and have informers.
func servedKinds(t *testing.T, p *vcluster.ControlPlane) map[schema.GroupVersionResource]servedKind {
	t.Helper()
	client := clientset(t, p.Loopback())
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"create", "list", "watch"}}, lists)
	upstream := informers.NewSharedInformerFactory(client, 0)
	kinds := map[schema.GroupVersionResource]servedKind{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			gvr := version.WithResource(r.Name)
			if _, err := upstream.ForResource(gvr); err == nil {
				kinds[gvr] = servedKind{version.WithKind(r.Kind), r.Namespaced}
			}
		}
	}
	return kinds
}

func watchAll[K any](t *testing.T, f informers.SharedInformerFactory, kinds map[schema.GroupVersionResource]K) map[schema.GroupVersionResource]cache.Indexer {
	t.Helper()
	stores := map[schema.GroupVersionResource]cache.Indexer{}
	for gvr := range kinds {
		i, err := f.ForResource(gvr)
		if err != nil {
			t.Fatal(err)
		}
		stores[gvr] = i.Informer().GetIndexer()
	}
	f.Start(t.Context().Done())
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if result := f.WaitForCacheSyncWithContext(ctx); result.Err != nil {
		t.Fatal(result.Err)
	}
	return stores
}

// compareAll compares with informers that read the API.
func compareAll(t *testing.T, p *vcluster.ControlPlane, stores map[schema.GroupVersionResource]cache.Indexer) {
	t.Helper()
	byAPI := watchAll(t, informers.NewSharedInformerFactoryWithOptions(
		clientset(t, p.Loopback()), 0, informers.WithTransform(informer.Trim)), stores)
	for gvr, store := range stores {
		err := until(t.Context(), func() error {
			if got, want := store.ListKeys(), byAPI[gvr].ListKeys(); len(got) != len(want) {
				return fmt.Errorf("%d objects, want %d", len(got), len(want))
			}
			for _, key := range byAPI[gvr].ListKeys() {
				want, _, _ := byAPI[gvr].GetByKey(key)
				got, _, _ := store.GetByKey(key)
				// A conversion may leave an empty map where the wire has none.
				if !equality.Semantic.DeepEqual(got, want) {
					return fmt.Errorf("%s: %s", key, difference(want, got))
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%v: %v", gvr, err)
		}
	}
}

// difference shows what JSON shows, for types with hidden fields.
func difference(want, got any) string {
	if got == nil {
		return "it is missing"
	}
	a, _ := json.MarshalIndent(want, "", " ")
	b, _ := json.MarshalIndent(got, "", " ")
	if d := cmp.Diff(string(a), string(b)); d != "" {
		return d
	}
	return fmt.Sprintf("%#v, want %#v", got.(runtime.Object), want)
}
