// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// Run watches the objects until ctx ends. It must be called once. The client's scheme must have the API of Berth.
func (s *Store) Run(ctx context.Context, host client.WithWatch) {
	reflector := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &v1alpha1.PublishedObjectList{}
			return list, host.List(ctx, list, &client.ListOptions{Raw: &o})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return host.Watch(ctx, &v1alpha1.PublishedObjectList{}, &client.ListOptions{Raw: &o})
		},
	}, &v1alpha1.PublishedObject{}, s, cache.ReflectorOptions{Name: "published objects"})
	reflector.RunWithContext(ctx)
}

// Add implements [cache.ReflectorStore].
func (s *Store) Add(item any) error { return s.Update(item) }

// Update implements [cache.ReflectorStore].
func (s *Store) Update(item any) error {
	from, ok := item.(*v1alpha1.PublishedObject)
	if !ok {
		return fmt.Errorf("store published object: unexpected type %T", item)
	}
	s.mu.Lock()
	changed := s.put(from)
	s.mu.Unlock()
	s.report(changed)
	return nil
}

// Delete implements [cache.ReflectorStore].
func (s *Store) Delete(item any) error {
	from, ok := item.(*v1alpha1.PublishedObject)
	if !ok {
		return fmt.Errorf("remove published object: unexpected type %T", item)
	}
	changed := map[string]bool{}
	s.mu.Lock()
	s.remove(from.Name, changed)
	s.mu.Unlock()
	s.report(changed)
	return nil
}

// Replace implements [cache.ReflectorStore]. It makes no moment at which an object is missing that was and is there.
func (s *Store) Replace(items []any, _ string) error {
	kept, changed := map[string]bool{}, map[string]bool{}
	s.mu.Lock()
	for _, item := range items {
		if from, ok := item.(*v1alpha1.PublishedObject); ok {
			kept[from.Name] = true
			maps.Copy(changed, s.put(from))
		}
	}
	for name := range maps.Clone(s.publication) {
		if !kept[name] {
			s.remove(name, changed)
		}
	}
	first := !s.read
	s.read = true
	s.mu.Unlock()
	if first { // spaces may wait for publications that have no objects
		s.changed(nil)
		return nil
	}
	s.report(changed)
	return nil
}

// Resync implements [cache.ReflectorStore]. It does nothing.
func (s *Store) Resync() error { return nil }

// put takes over an object, and returns which publications that changes. The caller holds mu.
func (s *Store) put(from *v1alpha1.PublishedObject) map[string]bool {
	changed := map[string]bool{}
	publication := from.Labels[v1alpha1.LabelPublication]
	siblings := s.publications[publication]
	if have := siblings[from.Name]; have != nil && have.resourceVersion == from.ResourceVersion {
		return changed
	}
	s.remove(from.Name, changed)
	if publication == "" {
		return changed
	}
	if siblings = s.publications[publication]; siblings == nil {
		siblings = map[string]*object{}
		s.publications[publication] = siblings
	}
	siblings[from.Name] = newObject(s.compiler, from, siblings)
	s.publication[from.Name] = publication
	changed[publication] = true
	return changed
}

// remove forgets an object, and notes which publication that changes. The caller holds mu.
func (s *Store) remove(name string, changed map[string]bool) {
	publication, ok := s.publication[name]
	if !ok {
		return
	}
	changed[publication] = true
	delete(s.publication, name)
	delete(s.publications[publication], name)
	if len(s.publications[publication]) == 0 {
		delete(s.publications, publication)
	}
}

func (s *Store) report(publications map[string]bool) {
	if len(publications) > 0 {
		s.changed(slices.Sorted(maps.Keys(publications)))
	}
}
