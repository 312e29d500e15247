// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/testcrd"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/vcluster/overlay"
)

var errFull = errors.New("the store is full")

// filling fails all writes after some.
type filling struct {
	kubernetes.Interface
	writes int
	failed bool
}

func (f *filling) write() error {
	if f.writes--; f.writes < 0 {
		f.failed = true
		return errFull
	}
	return nil
}

// OptimisticPut implements [kubernetes.Interface].
func (f *filling) OptimisticPut(ctx context.Context, key string, value []byte, revision int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	if err := f.write(); err != nil {
		return kubernetes.PutResponse{}, err
	}
	return f.Interface.OptimisticPut(ctx, key, value, revision, opts)
}

// OptimisticDelete implements [kubernetes.Interface].
func (f *filling) OptimisticDelete(ctx context.Context, key string, revision int64, opts kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	if err := f.write(); err != nil {
		return kubernetes.DeleteResponse{}, err
	}
	return f.Interface.OptimisticDelete(ctx, key, revision, opts)
}

// syncedSource forces the definitions of these kinds.
func syncedSource(t *testing.T, kinds ...string) *definitions.Source {
	t.Helper()
	var source *definitions.Source
	var all []*definitions.Shared
	for _, kind := range kinds {
		shared, err := definitions.ForSync(testcrd.New("example.com", kind, &apiextensionsv1.JSONSchemaProps{Type: "object"}), "v1")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, shared)
	}
	return source.WithSynced(all...)
}

// TestACopiedDefinitionIsReplacedAtAnyPoint starts a space whose store has Berth's copy of a definition, and ends the
// move of its objects after each of its writes. Nothing is lost, and the next start ends the move (C5).
func TestACopiedDefinitionIsReplacedAtAnyPoint(t *testing.T) {
	t.Parallel()
	const (
		root   = "/registry/"
		crds   = root + "apiextensions.k8s.io/customresourcedefinitions/"
		shared = root + "shared.definitions.berth.dev/example.com/"
	)
	definitionOf := func(kind, scope, stored, label string) string {
		return fmt.Sprintf(`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"%ss.example.com","labels":{%s}},"spec":{"scope":"%s","names":{"kind":"%s"}},"status":{"storedVersions":["%s"]}}`,
			strings.ToLower(kind), label, scope, kind, stored)
	}
	definition := func(kind, label string) string { return definitionOf(kind, "Namespaced", "v1", label) }
	const copied = `"app.kubernetes.io/managed-by":"berth"`
	before := map[string]string{
		crds + "widgets.example.com": definition("Widget", copied),                                  // Berth's copy
		crds + "gadgets.example.com": definition("Gadget", `"app.kubernetes.io/managed-by":"Helm"`), // the tenant's
		crds + "doodads.example.com": definition("Doodad", copied),                                  // not synced any more
	}
	// These are tenants' that look like copies.
	before[crds+"gizmos.example.com"] = definitionOf("Gizmo", "Cluster", "v1", copied)
	before[crds+"doohickeys.example.com"] = definitionOf("Doohickey", "Namespaced", "v9", copied)
	after := map[string]string{crds + "gadgets.example.com": before[crds+"gadgets.example.com"], crds + "doodads.example.com": before[crds+"doodads.example.com"]}
	for i := range 3 {
		object := fmt.Sprintf("widgets/default/w-%d", i)
		before[root+"example.com/"+object], after[shared+object] = fmt.Sprint("value ", i), fmt.Sprint("value ", i)
	}
	before[shared+"widgets/default/w-0"] = "value 0" // moved, and not deleted where it was
	older := map[string]string{shared + "widgets/default/w-1": "of a CRDShare that was in force before the copy was made"}
	later := map[string]string{shared + "widgets/default/w-2": "of a CRDShare that was in force later"}
	after[shared+"widgets/default/w-2"], after[root+"example.com/widgets/default/w-2"] = later[shared+"widgets/default/w-2"], "value 2"
	for _, own := range []string{"gizmos", "doohickeys"} {
		after[crds+own+".example.com"] = before[crds+own+".example.com"]
	}
	for _, other := range []string{"widgetsets/default/s", "gadgets/default/g", "doodads/default/d", "gizmos/g", "doohickeys/default/d"} {
		before[root+"example.com/"+other], after[root+"example.com/"+other] = other, other
	}

	for writes := 0; ; writes++ {
		store, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(t.TempDir(), "store.db"), Name: t.Name()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		client := store.Client()
		for _, some := range []map[string]string{older, before, later} {
			for key, value := range some {
				if _, err := client.Put(t.Context(), key, value); err != nil {
					t.Fatal(err)
				}
			}
		}
		stored := func() map[string]string {
			t.Helper()
			list, err := client.Kubernetes.List(t.Context(), root, kubernetes.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			all := map[string]string{}
			for _, kv := range list.Kvs {
				all[string(kv.Key)] = string(kv.Value)
			}
			delete(all, root+"health")
			return all
		}
		limited := &filling{Interface: client.Kubernetes, writes: writes}
		source := syncedSource(t, "Widget", "Gadget", "Gizmo", "Doohickey")
		if err := overlay.New(source, &kubernetes.Client{Client: client.Client, Kubernetes: limited}, nil).Load(t.Context()); err != nil {
			t.Errorf("after %d writes, the space doesn't start: %v", writes, err)
		}
		is := stored()
		for key := range after {
			old := strings.Replace(key, shared, root+"example.com/", 1)
			if is[key] != after[key] && is[old] != before[old] {
				t.Errorf("after %d writes, %s is lost", writes, key)
			}
		}
		if err := overlay.New(source, client, nil).Load(t.Context()); err != nil {
			t.Errorf("after %d writes, the space doesn't start again: %v", writes, err)
		}
		if diff := cmp.Diff(after, stored()); diff != "" {
			t.Errorf("after %d writes, and another start (-want +got):\n%s", writes, diff)
		}
		if !limited.failed {
			if writes < 7 { // three objects, of which one is only deleted, the copy, and the marker
				t.Errorf("it takes %d writes only: %v", writes, slices.Sorted(maps.Keys(is)))
			}
			return
		}
	}
}
