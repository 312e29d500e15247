// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// declared are the watches of what ResourceSyncs declare. They begin and end while the process runs.
type declared struct {
	mu sync.RWMutex
	of map[string]*declaredWatch // by the name of the declaration
	// next are watches that have to sync before they replace those in of.
	next map[string]*declaredWatch
	api  dynamic.Interface
}

type declaredWatch struct {
	*declaration.Declaration
	router *Router
	stop   func()
}

// Declare watches the host's objects of exactly these declarations. A watch whose declaration still needs the same goes on. One that needs
// another goes on until the other has synced, and [Host.DeclaredReady] has replaced it. It returns at once. It may be called after
// [Host.Start]. Neither may be called concurrently.
func (h *Host) Declare(all []*declaration.Declaration) error {
	if h.declared.api == nil {
		config := rest.CopyConfig(h.config)
		config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, ""
		api, err := dynamic.NewForConfig(config)
		if err != nil {
			return fmt.Errorf("make host client of custom resources: %w", err)
		}
		h.declared.api = api
	}
	wanted := make(map[string]*declaration.Declaration, len(all))
	for _, d := range all {
		wanted[d.Name] = d
	}
	var ended []func()
	h.declared.mu.Lock()
	if h.declared.of == nil {
		h.declared.of, h.declared.next = map[string]*declaredWatch{}, map[string]*declaredWatch{}
	}
	for name, w := range h.declared.of {
		if wanted[name] == nil {
			ended = append(ended, w.stop)
			delete(h.declared.of, name)
		}
	}
	for name, w := range h.declared.next {
		if d := wanted[name]; d == nil || !w.serves(d) {
			ended = append(ended, w.stop)
			delete(h.declared.next, name)
		}
	}
	for name, d := range wanted {
		switch w, next := h.declared.of[name], h.declared.next[name]; {
		case w != nil && w.serves(d):
			h.declared.of[name] = &declaredWatch{d, w.router, w.stop}
			if next != nil {
				ended = append(ended, next.stop)
				delete(h.declared.next, name)
			}
		case next != nil:
			h.declared.next[name] = &declaredWatch{d, next.router, next.stop}
		case w == nil:
			h.declared.of[name] = h.follow(d)
		default:
			h.declared.next[name] = h.follow(d)
		}
	}
	h.declared.mu.Unlock()
	for _, stop := range ended {
		stop()
	}
	return nil
}

// serves reports whether a watch is the one that a declaration needs.
func (w *declaredWatch) serves(d *declaration.Declaration) bool {
	return d.Kind == w.Kind && d.GVR == w.GVR && d.FromHost == w.FromHost && d.Selector.String() == w.Selector.String()
}

// follow begins to watch the objects of a declaration.
func (h *Host) follow(d *declaration.Declaration) *declaredWatch {
	of, changed, selector := spaceOf, h.sleepers.changed, translate.LabelSpace
	if d.FromHost { // as with classes, spaces see changes when they have woken
		of, changed, selector = func(client.Object) string { return EverySpace }, nil, d.Selector.String()
	}
	router := newRouter(of, changed, nil)
	router.Trim = func(o client.Object) client.Object {
		o.SetManagedFields(nil)
		return o
	}
	namespace := metav1.NamespaceAll
	if !d.FromHost {
		namespace = h.ownNamespace()
	}
	objects := h.declared.api.Resource(d.GVR).Namespace(namespace)
	from := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return objects.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return objects.Watch(ctx, o)
		},
	}
	if h.OwnOnly && !d.FromHost {
		h.listDeclared(router, func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return h.declared.api.Resource(d.GVR).Namespace(namespace).List(ctx, o)
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	safego.Go(&running, "watch the host", func() { router.Watch(ctx, d.Name, from, &unstructured.Unstructured{}) }, nil)
	return &declaredWatch{d, router, func() {
		cancel()
		running.Wait()
	}}
}

// listDeclared makes a router keep the objects of this process's spaces only, and list those of spaces that become so.
func (h *Host) listDeclared(r *Router, list listFunc) {
	r.own, r.list, r.beginsLater = h.IsOwn, list, true
}

// ErrUndeclared means that no watch was declared.
var ErrUndeclared = errors.New("it is not watched")

// DeclaredReady returns why the objects of a declaration, as it is now, are not known yet; nil if they are. Spaces that began with another
// watch of the declaration have to begin again then.
func (h *Host) DeclaredReady(name string) error {
	h.declared.mu.Lock()
	w, replaced := h.declared.of[name], h.declared.next[name]
	if replaced != nil {
		w, replaced = replaced, w
		if w.router.isFilled() {
			h.declared.of[name] = w
			delete(h.declared.next, name)
		}
	}
	h.declared.mu.Unlock()
	switch {
	case w == nil:
		return fmt.Errorf("%s: %w", name, ErrUndeclared)
	case w.router.isFilled():
		if replaced != nil {
			replaced.stop()
		}
		return nil
	case w.router.failed.get() != nil:
		return fmt.Errorf("read %s of the host: %w", name, w.router.failed.get())
	default:
		return fmt.Errorf("read %s of the host: %w", name, errNotSynced)
	}
}

// DeclaredFilled reports whether the watch of a declaration that spaces read has synced.
func (h *Host) DeclaredFilled(name string) bool {
	r := h.Router(name)
	return r != nil && r.isFilled()
}

// Router returns the router of a resource, or of a declaration; nil if it is not watched.
func (h *Host) Router(resource string) *Router {
	if r := h.Routers[resource]; r != nil {
		return r
	}
	h.declared.mu.RLock()
	defer h.declared.mu.RUnlock()
	if w := h.declared.of[resource]; w != nil {
		return w.router
	}
	return nil
}

// allRouters iterates over all routers, and the names of their resources or declarations.
func (h *Host) allRouters() iter.Seq2[string, *Router] {
	h.declared.mu.RLock()
	watches := slices.Concat(slices.Collect(maps.Values(h.declared.of)), slices.Collect(maps.Values(h.declared.next)))
	h.declared.mu.RUnlock()
	return func(yield func(string, *Router) bool) {
		for name, r := range h.Routers {
			if !yield(name, r) {
				return
			}
		}
		for _, w := range watches {
			if !yield(w.Name, w.router) {
				return
			}
		}
	}
}

// listedRouters iterates over the routers to list for spaces that become this process's.
func (h *Host) listedRouters() iter.Seq2[string, *Router] {
	return func(yield func(string, *Router) bool) {
		for name, r := range h.allRouters() {
			if r.own != nil && r.list != nil && !yield(name, r) {
				return
			}
		}
	}
}

// ResourceOf returns the resource, or the name of the declaration, of a host object that a syncer writes.
func (h *Host) ResourceOf(o client.Object) (name string, ok bool) {
	u, custom := o.(*unstructured.Unstructured)
	if !custom {
		r, ok := resources.ToHostOf(o)
		return r.Name, ok
	}
	h.declared.mu.RLock()
	defer h.declared.mu.RUnlock()
	for name, w := range h.declared.of {
		if w.Kind == u.GroupVersionKind() {
			return name, true
		}
	}
	return "", false
}

// stopDeclared ends the watches of declarations.
func (h *Host) stopDeclared() {
	h.declared.mu.Lock()
	all := slices.Concat(slices.Collect(maps.Values(h.declared.of)), slices.Collect(maps.Values(h.declared.next)))
	clear(h.declared.of)
	clear(h.declared.next)
	h.declared.mu.Unlock()
	for _, w := range all {
		w.stop()
	}
}

// declaredMapper maps the kinds of declarations, and others as the mapper in it does.
type declaredMapper struct {
	meta.RESTMapper
	host *Host
}

// RESTMapping implements [meta.RESTMapper].
func (m *declaredMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	m.host.declared.mu.RLock()
	defer m.host.declared.mu.RUnlock()
	for _, w := range m.host.declared.of {
		if w.Kind.GroupKind() != kind || len(versions) != 1 || versions[0] != w.Kind.Version {
			continue
		}
		scope := meta.RESTScope(meta.RESTScopeNamespace)
		if w.FromHost {
			scope = meta.RESTScopeRoot
		}
		return &meta.RESTMapping{Resource: w.GVR, GroupVersionKind: w.Kind, Scope: scope}, nil
	}
	return m.RESTMapper.RESTMapping(kind, versions...)
}
