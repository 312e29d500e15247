// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Router caches the objects of one shared host watch, and passes each event to the one space that it concerns, so that
// the cost of an event does not grow with the number of spaces. A reflector calls its methods of
// [cache.ReflectorStore], one at a time.
type Router struct {
	*Cache
	// Changed, if set, is called with the space of each object that was added, changed, or deleted.
	Changed func(space string)
	// Trim removes what no reader needs of an object. By default, it removes nothing. It may be set only before the
	// router is used.
	Trim func(client.Object) client.Object
	// Matters, if set, decides for each object that was added (was is nil), changed, or deleted (is is nil) whether to
	// deliver it. It is delivered first to the spaces that are awake, and then to followers, so that a space that goes
	// to sleep misses nothing.
	Matters func(was, is client.Object) bool
	Follow  func(was, is client.Object)

	// own, if set, reports whether this process has a space. Objects of other spaces are reduced, and not delivered.
	own func(space string) bool
	// list lists objects of the host in a namespace, or in all. It is nil if no object belongs to a single space.
	list listFunc
	page int64 // how many objects a request of list returns at most
	// beginsLater means that the watch begins while there are spaces already. Until it has synced, nothing is listed: it
	// brings the objects of all spaces that are this process's by then.
	beginsLater bool
	// clusterScoped means that list can't list the objects of one space.
	clusterScoped bool
	// writes is held while the watch, or a list, changes what is stored.
	writes sync.Mutex
	// listings are the lists under way, and ahead is the version that they have reached, if the watch has not.
	listings map[*listing]struct{}
	ahead    uint64

	// Reached is the latest resource version that the watch has reached, Delivered the latest that all receivers have
	// got.
	Reached, Delivered atomic.Uint64
	// filled is closed when the initial objects have been delivered.
	filled chan struct{}
	failed lastError // of the watch

	mu     sync.RWMutex
	spaces map[string]func(client.Object)
}

type listFunc func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error)

// EverySpace is the result of spaceOf for objects that concern all spaces.
const EverySpace = "*"

// newRouter returns a router. spaceOf returns the space of an object, or [EverySpace]. more are indexes of the cache.
func newRouter(spaceOf func(client.Object) string, changed func(space string), more cache.Indexers) *Router {
	return &Router{
		Cache: newCache(spaceOf, more), Changed: changed, Trim: func(o client.Object) client.Object { return o },
		page: listPage, filled: make(chan struct{}), spaces: map[string]func(client.Object){},
	}
}

// Watch fills the router, and follows the changes, until ctx ends.
func (r *Router) Watch(ctx context.Context, name string, from *cache.ListWatch, of runtime.Object) {
	cache.NewReflectorWithOptions(r.failed.noted(from), of, r, cache.ReflectorOptions{Name: "host " + name}).RunWithContext(ctx)
}

// Add implements [cache.ReflectorStore]. The object may already exist.
func (r *Router) Add(obj any) error { return r.event(obj, r.put) }

// Update implements [cache.ReflectorStore].
func (r *Router) Update(obj any) error { return r.event(obj, r.put) }

// Delete implements [cache.ReflectorStore].
func (r *Router) Delete(obj any) error { return r.event(obj, r.drop) }

// event processes an event of the watch.
func (r *Router) event(obj any, do func(client.Object) error) error {
	o, ok := obj.(client.Object)
	if !ok {
		return fmt.Errorf("host watch: %T is not an object", obj)
	}
	r.writes.Lock()
	defer r.writes.Unlock()
	r.reach(o.GetResourceVersion())
	if err := do(o); err != nil {
		return fmt.Errorf("host watch: %w", err)
	}
	r.noteDelivered()
	return nil
}

// Replace implements [cache.ReflectorStore]. It gets all objects when a watch begins, for the first time or again.
func (r *Router) Replace(objs []any, resourceVersion string) error {
	r.writes.Lock()
	defer r.writes.Unlock()
	if !r.isFilled() && slices.ContainsFunc(objs, func(obj any) bool { o, ok := obj.(client.Object); return ok && r.isReducedOwn(o) }) {
		return errOwnMeanwhile // which makes the reflector list again
	}
	r.reach(resourceVersion)
	there := make(map[string]struct{}, len(objs))
	for _, obj := range objs {
		o, ok := obj.(client.Object)
		if !ok {
			return fmt.Errorf("host watch: %T is not an object", obj)
		}
		there[cache.MetaObjectToName(o).String()] = struct{}{}
		if err := r.put(o); err != nil {
			return fmt.Errorf("host watch: %w", err)
		}
	}
	for _, key := range r.Keys() {
		if _, ok := there[key]; ok {
			continue
		}
		if gone, ok := r.Get(key).(client.Object); ok && !r.isLater(gone, resourceVersion) {
			if err := r.drop(gone); err != nil {
				return fmt.Errorf("host watch: %w", err)
			}
		}
	}
	for l := range r.listings {
		l.replaced = true
	}
	r.noteDelivered()
	if !r.isFilled() {
		close(r.filled)
	}
	return nil
}

// Bookmark implements [cache.ReflectorBookmarkStore].
func (r *Router) Bookmark(resourceVersion string) error {
	r.writes.Lock()
	defer r.writes.Unlock()
	r.reach(resourceVersion)
	r.noteDelivered()
	return nil
}

// Transformer implements [cache.TransformingStore], so that what a reflector collects before a watch begins is no
// larger than what is kept.
func (r *Router) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		o, ok := obj.(client.Object)
		if !ok {
			return obj, nil
		}
		if other := r.other(o); other != nil {
			return other, nil
		}
		return r.Trim(o), nil
	}
}

// Resync implements [cache.ReflectorStore].
func (r *Router) Resync() error { return nil }

func (r *Router) isFilled() bool {
	select {
	case <-r.filled:
		return true
	default:
		return false
	}
}

// put stores an object and delivers it: as a change, unless it is an initial object, or the same version is already
// stored. The caller holds writes.
func (r *Router) put(is client.Object) error {
	if other := r.other(is); other != nil {
		return r.putOther(other)
	}
	if r.isReducedOwn(is) || r.isPast(is) {
		return nil // a list brings it, or has brought a newer version
	}
	is = r.Trim(is)
	was, err := r.swap(is)
	if err != nil {
		return err
	}
	if r.Matters != nil && !r.Matters(was, is) {
		return nil
	}
	if Same(was, is) {
		r.Deliver(was, false)
		return nil
	}
	changed := was != nil || r.isFilled()
	if was != nil && r.SpaceOf(was) != r.SpaceOf(is) {
		r.Deliver(was, changed) // it no longer belongs to the space
	}
	r.Deliver(is, changed)
	if r.Follow != nil {
		r.Follow(was, is)
	}
	return nil
}

// drop removes a deleted object, and delivers it. The caller holds writes.
func (r *Router) drop(gone client.Object) error {
	r.noteGone(gone)
	if r.isPast(gone) {
		return nil // there is another one of this name
	}
	err := r.remove(gone)
	if r.other(gone) != nil {
		return err
	}
	if r.Matters != nil && !r.Matters(gone, nil) {
		return err
	}
	r.Deliver(gone, true)
	if r.Follow != nil {
		r.Follow(gone, nil)
	}
	return err
}

// reach records that the watch has reached a version. The caller holds writes.
func (r *Router) reach(resourceVersion string) {
	v := Version(resourceVersion)
	r.Reached.Store(max(r.Reached.Load(), v))
	if v >= r.ahead {
		r.ahead = 0
	}
}

// noteDelivered records that everything up to the reached version has been delivered.
func (r *Router) noteDelivered() { r.Delivered.Store(r.Reached.Load()) }

// Deliver passes an object to its space. changed means that it has changed on the host, so that a sleeping space wakes.
func (r *Router) Deliver(o client.Object, changed bool) {
	space := r.SpaceOf(o)
	if space == "" {
		return
	}
	r.receive(space, o)
	if changed && r.Changed != nil {
		r.Changed(space)
	}
}

func (r *Router) receive(space string, o client.Object) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if space == EverySpace {
		for _, receive := range r.spaces {
			receive(o)
		}
		return
	}
	if receive := r.spaces[space]; receive != nil {
		receive(o)
	}
}

// Subscribe calls receive with each existing object of the space, and then with each that changes, until the returned
// function is called. receive must not block, and may get an object twice.
func (r *Router) Subscribe(space string, receive func(client.Object)) (cancel func(), err error) {
	r.mu.Lock()
	if r.spaces[space] != nil {
		r.mu.Unlock()
		return nil, fmt.Errorf("space %s is synced twice", space)
	}
	r.spaces[space] = receive
	r.mu.Unlock()
	for _, name := range []string{space, EverySpace} {
		for obj := range r.Of(name) {
			receive(obj)
		}
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.spaces, space)
	}, nil
}

// Version returns a resource version as a number. Since Kubernetes 1.35, it is a number on conformant clusters. On
// others, the result is 0, and a space may wake because of its own write.
func Version(resourceVersion string) uint64 {
	v, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}
