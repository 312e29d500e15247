// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// View is a pool as one user sees it: an [informers.SharedInformerFactory] that
// knows which informers the user asked for. Its informers end when all views
// that asked for them are closed, or the pool is, and not with what they are
// started with.
//
// A held view keeps events from its user's handlers until it is released.
// Upstream's controllers are written for informers that start when all
// controllers are built: their constructors add handlers before they have set
// every field that a handler reads. A pool's informers may have long started.
type View struct {
	groups
	pool     *Pool
	released chan struct{}

	mu       sync.Mutex
	closed   bool
	used     map[reflect.Type]*member
	handlers []handler
}

type handler struct {
	informer cache.SharedIndexInformer
	handle   cache.ResourceEventHandlerRegistration
}

var _ informers.SharedInformerFactory = (*View)(nil)

// View returns a view that holds nothing.
func (p *Pool) View() *View {
	v := p.HeldView()
	v.Release()
	return v
}

// HeldView returns a view that holds events back.
func (p *Pool) HeldView() *View {
	v := &View{pool: p, released: make(chan struct{}), used: map[reflect.Type]*member{}}
	v.groups = groups{v}
	return v
}

// Release lets events through. Call it once.
func (v *View) Release() { close(v.released) }

// Close takes the user's handlers from the informers, and ends those informers
// that nobody else uses. A held view must have been released.
func (v *View) Close() {
	v.mu.Lock()
	v.closed = true
	handlers, used := v.handlers, v.members()
	v.handlers, v.used = nil, nil
	v.mu.Unlock()
	for _, h := range handlers {
		_ = h.informer.RemoveEventHandler(h.handle) // it may be removed already
	}
	v.pool.leave(used)
}

func (v *View) members() []*member {
	var members []*member
	for _, m := range v.used {
		members = append(members, m)
	}
	return members
}

// InformerFor is what the groups, and all that they offer, come down to. Of a
// closed view, the informer never runs.
func (v *View) InformerFor(example runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return newFunc(v.pool.client, Resync)
	}
	t := reflect.TypeOf(example)
	m, ok := v.used[t]
	if !ok {
		m = v.pool.use(example, newFunc)
		v.used[t] = m
	}
	return viewed{m.SharedIndexInformer, v}
}

// ForResource returns the informer of a built-in resource.
func (v *View) ForResource(r schema.GroupVersionResource) (informers.GenericInformer, error) {
	example, err := exampleOf(r)
	if err != nil {
		return nil, err
	}
	// Asked for a resource that it does not have, upstream's factory fails. It
	// makes an informer otherwise, which is the one to use if the pool has none.
	upstream, err := informers.NewSharedInformerFactory(v.pool.client, Resync).ForResource(r)
	if err != nil {
		return nil, err
	}
	return generic{v.InformerFor(example, func(kubernetesClient, resync) cache.SharedIndexInformer {
		return upstream.Informer()
	}), r.GroupResource()}, nil
}

// exampleOf returns an object of the resource's type.
func exampleOf(r schema.GroupVersionResource) (runtime.Object, error) {
	for kind := range legacyscheme.Scheme.KnownTypes(r.GroupVersion()) {
		kind := r.GroupVersion().WithKind(kind)
		if plural, _ := meta.UnsafeGuessKindToResource(kind); plural == r {
			return legacyscheme.Scheme.New(kind)
		}
	}
	return nil, fmt.Errorf("there is no built-in resource %s", r)
}

type generic struct {
	informer cache.SharedIndexInformer
	resource schema.GroupResource
}

func (g generic) Informer() cache.SharedIndexInformer { return g.informer }

func (g generic) Lister() cache.GenericLister {
	return cache.NewGenericLister(g.informer.GetIndexer(), g.resource)
}

// InformerName names no factory: names are for metrics of one process's only
// control plane.
func (v *View) InformerName() *cache.InformerName { return nil }

// Start starts the informers asked for so far. It does not heed the channel.
func (v *View) Start(<-chan struct{}) { v.start() }

// StartWithContext starts the informers asked for so far. It does not heed the
// context's end.
func (v *View) StartWithContext(context.Context) { v.start() }

func (v *View) start() {
	v.mu.Lock()
	members := v.members()
	v.mu.Unlock()
	v.pool.start(members)
}

// Shutdown does nothing: see Close.
func (v *View) Shutdown() {}

// WaitForCacheSync waits for the informers asked for so far.
func (v *View) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	return v.WaitForCacheSyncWithContext(wait.ContextForChannel(stop)).Synced
}

// WaitForCacheSyncWithContext waits for the informers asked for so far.
func (v *View) WaitForCacheSyncWithContext(ctx context.Context) cache.SyncResult {
	v.mu.Lock()
	used := maps.Clone(v.used)
	v.mu.Unlock()
	var checkers []cache.DoneChecker
	for _, m := range used {
		checkers = append(checkers, m.HasSyncedChecker())
	}
	result := cache.SyncResult{Synced: make(map[reflect.Type]bool, len(used))}
	if !cache.WaitFor(ctx, "", checkers...) {
		result.Err = context.Cause(ctx)
	}
	for t, m := range used {
		result.Synced[t] = m.HasSynced()
	}
	return result
}

func (v *View) added(h handler) {
	v.mu.Lock()
	closed := v.closed
	if !closed {
		v.handlers = append(v.handlers, h)
	}
	v.mu.Unlock()
	if closed {
		_ = h.informer.RemoveEventHandler(h.handle)
	}
}

// removed forgets a handler that the user took away.
func (v *View) removed(handle cache.ResourceEventHandlerRegistration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.handlers = slices.DeleteFunc(v.handlers, func(h handler) bool { return h.handle == handle })
}
