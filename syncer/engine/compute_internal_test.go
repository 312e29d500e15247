// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// S8: a space's syncer may compute at once what takes two seconds, and then for half of the time.
func TestHostileComputingHasAShareOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, begun := newComputing(clock.RealClock{}), time.Now()
		for range 12 {
			c.compute(t.Context(), func() { <-time.After(500 * time.Millisecond) })
		}
		if took := time.Since(begun); took < 8*time.Second || took > 10*time.Second {
			t.Errorf("six seconds' work took %s", took)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		begun = time.Now()
		c.compute(ended, func() {})
		c.compute(ended, func() { <-time.After(time.Hour) })
		if took := time.Since(begun); took > time.Hour {
			t.Errorf("it waited for %s after its context had ended", took-time.Hour)
		}
	})
}

// S8: it uses one processor at a time, whatever panics.
func TestComputingIsDoneOneAfterTheOther(t *testing.T) {
	t.Parallel()
	c := newComputing(clock.RealClock{})
	var all sync.WaitGroup
	var now, most atomic.Int32
	for range 8 {
		all.Go(func() {
			defer func() { _ = recover() }()
			c.compute(t.Context(), func() {
				most.Store(max(most.Load(), now.Add(1)))
				for i := 0; i < 1000; i++ {
					_ = time.Now()
				}
				now.Add(-1)
				panic("over one object")
			})
		})
	}
	all.Wait()
	if n := most.Load(); n != 1 {
		t.Errorf("%d were done at once", n)
	}
}

// L3: until a watch of names has begun, nothing but names is collected.
func TestHostileAnnotationsAreNotCollectedWithNames(t *testing.T) {
	t.Parallel()
	store, ok := any((*changedNames)(&nameWatch{})).(cache.TransformingStore)
	if !ok {
		t.Fatal("a reflector collects all metadata of all objects")
	}
	got, err := store.Transformer()(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "o", Annotations: map[string]string{"a": "large"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}})
	o, is := got.(*metav1.PartialObjectMetadata)
	if err != nil || !is || o.Namespace != "n" || o.Name != "o" || len(o.Annotations)+len(o.ManagedFields) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
}
