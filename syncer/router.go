// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fanout holds what one shared host watch shows, and hands each event to the one
// space that it concerns, so that the cost of an event does not grow with the
// spaces. A reflector calls its methods of [cache.ReflectorStore], one at a time.
type fanout struct {
	*mirror
	// changed, if set, is told of which space an object came, changed or went.
	changed func(space string)
	// trim drops what no reader needs of an object.
	trim func(client.Object) client.Object
	// matters, if set, is asked of each object that came (was is nil), changed or
	// went (is is nil) whether to tell of it; told of it then are first the spaces
	// that are awake, then follow, so that a space that falls asleep misses nothing.
	matters func(was, is client.Object) bool
	follow  func(was, is client.Object)

	// reached is the latest resource version that the watch has got to, shown the
	// latest that all who had to have been told of.
	reached, shown atomic.Uint64
	// filled is closed when what was there at first has been told.
	filled chan struct{}
	failed lastError // of the watch

	mu     sync.RWMutex
	spaces map[string]func(client.Object)
}

// everySpace is what spaceOf returns for objects that concern all spaces.
const everySpace = "*"

func newFanout(spaceOf func(client.Object) string, changed func(space string), more cache.Indexers) *fanout {
	return &fanout{
		mirror: newMirror(spaceOf, more), changed: changed, trim: trim,
		filled: make(chan struct{}), spaces: map[string]func(client.Object){},
	}
}

// watch fills the fanout, and follows what is listed, until ctx ends.
func (f *fanout) watch(ctx context.Context, name string, from *cache.ListWatch, of runtime.Object) {
	cache.NewReflectorWithOptions(f.failed.noted(from), of, f, cache.ReflectorOptions{Name: "host " + name}).RunWithContext(ctx)
}

// Add implements [cache.ReflectorStore]. It may be an object that is there.
func (f *fanout) Add(obj any) error { return f.event(obj, f.put) }

// Update implements [cache.ReflectorStore].
func (f *fanout) Update(obj any) error { return f.event(obj, f.put) }

// Delete implements [cache.ReflectorStore].
func (f *fanout) Delete(obj any) error { return f.event(obj, f.drop) }

// event carries out what a watch shows.
func (f *fanout) event(obj any, do func(client.Object) error) error {
	o, ok := obj.(client.Object)
	if !ok {
		return fmt.Errorf("host watch: %T is not an object", obj)
	}
	f.reach(o.GetResourceVersion())
	if err := do(o); err != nil {
		return fmt.Errorf("host watch: %w", err)
	}
	f.told()
	return nil
}

// Replace implements [cache.ReflectorStore]: it is what there is when a watch
// begins, and begins anew.
func (f *fanout) Replace(objs []any, resourceVersion string) error {
	f.reach(resourceVersion)
	there := make(map[string]struct{}, len(objs))
	for _, obj := range objs {
		o, ok := obj.(client.Object)
		if !ok {
			return fmt.Errorf("host watch: %T is not an object", obj)
		}
		there[cache.MetaObjectToName(o).String()] = struct{}{}
		if err := f.put(o); err != nil {
			return fmt.Errorf("host watch: %w", err)
		}
	}
	for _, key := range f.keys() {
		if _, ok := there[key]; ok {
			continue
		}
		if gone, ok := f.get(key).(client.Object); ok {
			if err := f.drop(gone); err != nil {
				return fmt.Errorf("host watch: %w", err)
			}
		}
	}
	f.told()
	if !f.isFilled() {
		close(f.filled)
	}
	return nil
}

// Bookmark implements [cache.ReflectorBookmarkStore].
func (f *fanout) Bookmark(resourceVersion string) error {
	f.reach(resourceVersion)
	f.told()
	return nil
}

// Transformer implements [cache.TransformingStore]: what a reflector collects until
// a watch has begun is no larger than what is kept.
func (f *fanout) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if o, ok := obj.(client.Object); ok {
			return f.trim(o), nil
		}
		return obj, nil
	}
}

// Resync implements [cache.ReflectorStore].
func (f *fanout) Resync() error { return nil }

func (f *fanout) isFilled() bool {
	select {
	case <-f.filled:
		return true
	default:
		return false
	}
}

// put stores an object and tells of it: as a change, unless it is the one that is
// there, or one of the first.
func (f *fanout) put(is client.Object) error {
	is = f.trim(is)
	was, err := f.swap(is)
	if err != nil {
		return err
	}
	if f.matters != nil && !f.matters(was, is) {
		return nil
	}
	if same(was, is) {
		f.deliver(was, false)
		return nil
	}
	changed := was != nil || f.isFilled()
	if was != nil && f.spaceOf(was) != f.spaceOf(is) {
		f.deliver(was, changed) // it was taken from the space
	}
	f.deliver(is, changed)
	if f.follow != nil {
		f.follow(was, is)
	}
	return nil
}

// drop forgets an object that is gone, and tells of it.
func (f *fanout) drop(gone client.Object) error {
	err := f.remove(gone)
	if f.matters != nil && !f.matters(gone, nil) {
		return err
	}
	f.deliver(gone, true)
	if f.follow != nil {
		f.follow(gone, nil)
	}
	return err
}

// reach notes that the watch has got to a version; one call at a time.
func (f *fanout) reach(resourceVersion string) {
	f.reached.Store(max(f.reached.Load(), version(resourceVersion)))
}

// told notes that all has been told that the watch has got to.
func (f *fanout) told() { f.shown.Store(f.reached.Load()) }

func (f *fanout) deliver(o client.Object, changed bool) {
	space := f.spaceOf(o)
	if space == "" {
		return
	}
	f.receive(space, o)
	if changed && f.changed != nil {
		f.changed(space)
	}
}

func (f *fanout) receive(space string, o client.Object) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if space == everySpace {
		for _, receive := range f.spaces {
			receive(o)
		}
		return
	}
	if receive := f.spaces[space]; receive != nil {
		receive(o)
	}
}

// subscribe calls receive with each object of the space there is, then with
// each that changes, until the returned function is called. receive must not
// block; it may see an object twice.
func (f *fanout) subscribe(space string, receive func(client.Object)) (cancel func(), err error) {
	f.mu.Lock()
	if f.spaces[space] != nil {
		f.mu.Unlock()
		return nil, fmt.Errorf("space %s is synced twice", space)
	}
	f.spaces[space] = receive
	f.mu.Unlock()
	for _, name := range []string{space, everySpace} {
		for obj := range f.of(name) {
			receive(obj)
		}
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.spaces, space)
	}, nil
}
