// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/definitions"
)

// TestHostileWritesDuringSwitchesStayWithTheirDefinition writes while definitions are switched, as fast as it can. What was acknowledged
// is there, and by the definition under which it was written: the tenant's prunes sizes, and the platform's prunes colors (C5).
func TestHostileWritesDuringSwitchesStayWithTheirDefinition(t *testing.T) {
	t.Parallel()
	const writers, switches = 4, 60
	optional := &definitions.Shared{CRD: shared(t, hostWidgets()), InRange: true}
	c := config(t, "racing")
	c.Definitions = &definitions.Source{}
	tenant := newTenantOf(t, start(t, c))
	tenant.define(t, localWidgets())
	// Upstream lets objects of a new definition wait for two seconds.
	if _, err := tenant.widgets.Create(t.Context(), widget("first", map[string]any{"color": "red"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	var writing sync.WaitGroup
	var mu sync.Mutex
	acknowledged := map[string]string{}
	stop := make(chan struct{})
	for writer := range writers {
		writing.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("w%d-%d", writer, i)
				made, err := tenant.widgets.Create(t.Context(), widget(name, map[string]any{"color": "red", "size": int64(5)}), metav1.CreateOptions{})
				if err != nil {
					if !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
						t.Errorf("create %s: %v", name, err)
					}
					continue
				}
				_, err = tenant.widgets.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
				if err != nil && !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err) {
					t.Errorf("patch %s: %v", name, err)
				}
				mu.Lock()
				acknowledged[name] = definitionOf(made)
				mu.Unlock()
			}
		})
	}
	written := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged)
	}
	for i := range switches {
		before := written()
		c.Definitions.Set(definitions.NewSet([]definitions.Policy{definitions.SystemCRDFirst, definitions.LocalCRDFirst}[i%2], optional))
		if i%3 > 0 { // else at once
			eventually(t, func() error {
				if written() == before {
					return fmt.Errorf("nothing was written since the switch")
				}
				return nil
			})
		}
	}
	close(stop)
	writing.Wait()

	found := map[string]string{"first": "local"}
	mu.Lock()
	acknowledged["first"] = "local"
	mu.Unlock()
	for definition, policy := range map[string]definitions.Policy{"local": definitions.LocalCRDFirst, "shared": definitions.SystemCRDFirst} {
		c.Definitions.Set(definitions.NewSet(policy, optional))
		tenant.waitForSize(t, definition == "shared")
		list, err := tenant.widgets.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if has := definitionOf(&list.Items[i]); has != definition {
				t.Errorf("%s is with the objects of the %s definition, and of the %s one: %v", list.Items[i].GetName(), definition, has, list.Items[i].Object["spec"])
			}
			found[list.Items[i].GetName()] = definition
		}
	}
	counts := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(acknowledged)) {
		counts[acknowledged[name]]++
		if found[name] != acknowledged[name] {
			t.Errorf("%s was written by the %s definition, and is with objects of the %q one", name, acknowledged[name], found[name])
		}
	}
	t.Log("written", counts)
	if counts["local"] < switches/3 || counts["shared"] < switches/3 {
		t.Errorf("objects written: %v, want many of both definitions", counts)
	}
}

func definitionOf(object *unstructured.Unstructured) string {
	spec, _, _ := unstructured.NestedMap(object.Object, "spec")
	_, color := spec["color"]
	_, size := spec["size"]
	switch {
	case color && !size:
		return "local"
	case size && !color:
		return "shared"
	}
	return fmt.Sprintf("unknown: %v", spec)
}
