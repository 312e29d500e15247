// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/heapsize"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/resources"
)

// FromExtension returns an informer of the space's objects of a resource, converted by [typed]. The platform forces the definition on the
// space. [Engine.Run] starts the informer.
func (s *Engine) FromExtension(resource string) (cache.SharedIndexInformer, error) {
	if a := s.added[resource]; a != nil {
		return a.informer, nil
	}
	r := resources.Of(resource)
	return s.add(&added{resource: resource}, r.GVR(), func(obj any) (any, error) { return typed(r, obj) })
}

// FromDeclared is like [Engine.FromExtension], for the objects of a declaration, as they are.
func (s *Engine) FromDeclared(d *declaration.Declaration) (cache.SharedIndexInformer, error) {
	return s.add(&added{resource: d.Name, quiet: d.FromHost}, d.GVR, func(obj any) (any, error) {
		if o, ok := obj.(client.Object); ok {
			o.SetManagedFields(nil)
		}
		return obj, nil
	})
}

// add makes the informer of an extension.
func (s *Engine) add(a *added, gvr schema.GroupVersionResource, transform cache.TransformFunc) (cache.SharedIndexInformer, error) {
	api, err := dynamic.NewForConfig(s.toSpace)
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", a.resource, err)
	}
	a.informer = dynamicinformer.NewFilteredDynamicInformer(api, gvr, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	err = errors.Join(a.informer.SetTransform(transform), a.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		a.failed.Store(true) // a tenant may have its own server answer
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}))
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", a.resource, err)
	}
	s.extended[a.informer], s.added[a.resource] = a, a
	return a.informer, nil
}

// ExtensionInformer returns the informer that [Engine.FromExtension] has made for a resource; nil if there is none.
func (s *Engine) ExtensionInformer(resource string) cache.SharedIndexInformer {
	if a := s.added[resource]; a != nil {
		return a.informer
	}
	return nil
}

// added is an extension in one space.
type added struct {
	resource string
	informer cache.SharedIndexInformer
	quiet    bool        // the objects are copies of the host's, for which no space has to stay awake
	failed   atomic.Bool // the objects could not be read
}

// mayRest reports whether a space may sleep although something of a resource can't be done now.
func (s *Engine) mayRest(resource string) bool {
	a := s.added[resource]
	return resources.Of(resource).Class || a != nil && a.quiet
}

// hasSynced reports whether an extension's informer, whose state synced returns, has enqueued all existing objects. One that fails counts
// as synced, because a tenant must not be able to keep its space awake.
func (a *added) hasSynced(synced func() bool) bool { return synced() || a.failed.Load() }

// runExtension runs an informer of the space until ctx ends, and counts its memory.
func (s *Engine) runExtension(ctx context.Context, informer cache.SharedIndexInformer) {
	counter, err := heapsize.Count(informer, func(bytes int64) { s.account.Add(bounds.CachedBytes, bytes) })
	if err != nil {
		return // it has stopped
	}
	defer counter.Stop()
	informer.RunWithContext(ctx)
}

// ErrUnsettled means that it is not known yet which objects of a resource the space has.
var ErrUnsettled = errors.New("the space's objects are not known yet")

// Settled reports whether it is known which objects of a resource the space has. Before, none may be treated as
// deleted.
func (s *Engine) Settled(resource string) bool {
	a := s.added[resource]
	return a == nil || a.informer.HasSynced()
}

// notHidden returns [ErrUnsettled] if the space has an object of an extension stored that its API doesn't show, such as one of a tenant's own
// definition while the platform's is in force.
func (s *Engine) notHidden(ctx context.Context, key Key, like client.Object, uid types.UID) error {
	if s.hides == nil || s.added[key.Resource] == nil || uid == "" {
		return nil
	}
	gvk, err := apiutil.GVKForObject(like, s.VirtualAPI.Scheme())
	if err != nil {
		return fmt.Errorf("look for %s %s in the space: %w", key.Resource, key.NamespacedName, err)
	}
	hidden, err := s.hides(ctx, gvk.Group, key.Namespace, key.Name, uid)
	if err == nil && hidden {
		err = ErrUnsettled
	}
	return err
}

// runExtensions runs the informers of extensions until ctx ends.
func (s *Engine) runExtensions(ctx context.Context, running *sync.WaitGroup) {
	for informer := range s.extended {
		safego.Go(running, "sync an extension", func() { s.runExtension(ctx, informer) }, nil)
	}
}
