// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/vcluster/refusal"
)

// sharedPrefix is where custom resources of shared definitions are stored, below the prefix of all objects. No definition of a space
// leads there: what follows is a group, which has a dot, and where a definition's plural would be, which has none.
const sharedPrefix = "shared.definitions.berth.dev/"

// class says whose definition of a name the API server serves.
type class struct {
	shared  bool
	epoch   int64 // when that began
	since   int64 // a revision after that; 0 if nobody has asked
	watches map[*expiring]struct{}
}

// Follow learns from the informer of definitions which of them the API server serves, and has it keep the process's copy of shared
// ones. It must be called before the informer starts.
//
// Upstream's handler of custom resources looks a definition up in the informer's store, and keeps the storage that it made for one
// until it hears of a change, which is later. An index of the store is computed while the store is locked for the change. So what
// is counted here changes together with what the handler finds.
func (s *Space) Follow(informer cache.SharedIndexInformer) error {
	if err := informer.SetTransform(s.intern); err != nil {
		return fmt.Errorf("follow definitions: %w", err)
	}
	err := informer.AddIndexers(cache.Indexers{"berth.dev/class": func(object any) ([]string, error) {
		if crd, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok {
			s.see(crd)
		}
		return nil, nil
	}})
	if err != nil {
		return fmt.Errorf("follow definitions: %w", err)
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			s.expireResources(name)
		}
	}})
	if err != nil {
		return fmt.Errorf("follow definitions: %w", err)
	}
	return nil
}

// expireResources ends the watches of custom resources whose definition is no longer in force.
func (s *Space) expireResources(name string) {
	s.classMu.Lock()
	defer s.classMu.Unlock()
	if c := s.classes[name]; c != nil {
		for w := range c.watches {
			w.expire()
		}
		if clear(c.watches); !c.shared && c.epoch == 0 {
			delete(s.classes, name)
		}
	}
}

// intern returns the process's copy of a shared definition.
func (s *Space) intern(object any) (any, error) {
	crd, ok := object.(*apiextensionsv1.CustomResourceDefinition)
	if !ok || !definitions.IsShared(crd) {
		return object, nil
	}
	set, _ := s.current()
	if shared := set.Of(crd.Name); shared != nil && shared.CRD.UID == crd.UID {
		return shared.CRD, nil
	}
	return object, nil // the watch ends soon, and the list after it has the other
}

// see notes which definition is in the informer's store, which is locked.
func (s *Space) see(crd *apiextensionsv1.CustomResourceDefinition) {
	shared := definitions.IsShared(crd)
	s.classMu.Lock()
	defer s.classMu.Unlock()
	c := s.classes[crd.Name]
	if c != nil && c.shared == shared {
		return
	}
	if c == nil && !shared {
		return // as long as there was no other
	}
	if c != nil {
		for w := range c.watches {
			w.expire()
		}
	}
	s.classes[crd.Name] = &class{shared: shared, epoch: s.epoch.Add(1), watches: map[*expiring]struct{}{}}
}

type epochKey struct{}

// Begin returns the context of a request, with when it began, and whether it only tries what it does.
func (s *Space) Begin(r *http.Request) context.Context {
	ctx := context.WithValue(r.Context(), epochKey{}, s.epoch.Load())
	if strings.Contains(r.URL.RawQuery, "dryRun") {
		return context.WithValue(ctx, dryRunKey{}, true)
	}
	return ctx
}

// Resources returns the options of custom resources, whose definitions the overlay follows.
func (s *Space) Resources(next generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return resourceOptions{next, s}
}

type resourceOptions struct {
	generic.RESTOptionsGetter
	space *Space
}

// GetRESTOptions implements [generic.RESTOptionsGetter].
func (o resourceOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	bound := o.space.bind(resource)
	if bound.shared {
		options.ResourcePrefix = sharedPrefix + options.ResourcePrefix
	}
	open := options.Decorator
	options.Decorator = func(
		c *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error), newFunc, newListFunc func() runtime.Object,
		attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		opened, destroy, err := open(c, prefix, key, newFunc, newListFunc, attributes, triggers, indexers)
		if err != nil {
			return nil, nil, err
		}
		return &resourceStorage{opened, bound}, destroy, nil
	}
	return options, nil
}

// binding is which of two definitions a storage was made for.
type binding struct {
	space    *Space
	resource schema.GroupResource
	shared   bool
	epoch    int64
}

// bind returns which definition of a resource the API server serves now. The handler that asks may have looked before the last change;
// [binding.check] finds that out.
func (s *Space) bind(resource schema.GroupResource) binding {
	s.classMu.Lock()
	defer s.classMu.Unlock()
	b := binding{space: s, resource: resource}
	if c := s.classes[resource.String()]; c != nil {
		b.shared, b.epoch = c.shared, c.epoch
	}
	return b
}

var errNoRequest = errors.New("objects of a shared definition are changed by requests only")

// check refuses to use the storage of another definition than the one that the API server serves. A storage may have been made for a
// definition that its handler had looked up before the last change, and be bound to the one after it. Whoever uses that one has begun
// before the change, or comes before the handler has heard of the next change and made another storage.
func (b binding) check(ctx context.Context) error {
	b.space.classMu.Lock()
	defer b.space.classMu.Unlock()
	return b.checkLocked(ctx)
}

func (b binding) checkLocked(ctx context.Context) error {
	var epoch int64
	if c := b.space.classes[b.resource.String()]; c != nil {
		epoch = c.epoch
	}
	begun, isRequest := ctx.Value(epochKey{}).(int64)
	switch {
	case epoch != b.epoch, isRequest && begun < b.epoch:
		return apierrors.NewTooManyRequests(fmt.Sprintf(
			"another CustomResourceDefinition %s has just come into force; try again", b.resource), refusal.RetrySeconds)
	case !isRequest && b.shared: // the end of the space's own definition, of which all objects are deleted
		return storage.NewInternalError(errNoRequest)
	}
	return nil
}

// since returns a revision after all that clients could read of the other definition's objects, and before what they read of this one's.
func (b binding) since(ctx context.Context) (int64, error) {
	known, err := b.knownSince(ctx, 0)
	if err != nil || known >= 0 {
		return known, err
	}
	revision, err := b.space.remark(ctx)
	if err != nil && revision > 0 { // a full disk must not keep objects from being read
		return revision, nil
	}
	if err != nil {
		return 0, err
	}
	return b.knownSince(ctx, revision)
}

// knownSince returns the revision, or revision if none is known, and a negative number if that is 0.
func (b binding) knownSince(ctx context.Context, revision int64) (int64, error) {
	b.space.classMu.Lock()
	defer b.space.classMu.Unlock()
	if err := b.checkLocked(ctx); err != nil {
		return 0, err
	}
	name := b.resource.String()
	c := b.space.classes[name]
	if c == nil || c.epoch == 0 {
		if _, kept := slices.BinarySearch(b.space.kept, name); !kept {
			return b.space.loaded, nil
		}
		// Before the space slept, it may have created or deleted its own.
	}
	c = b.space.classOf(name)
	switch {
	case c.since == 0 && revision == 0:
		return -1, nil
	case c.since == 0:
		c.since = revision
	}
	return c.since, nil
}

// resourceStorage is the storage of custom resources of one definition.
type resourceStorage struct {
	storage.Interface
	bound binding
}

// Create implements [storage.Interface].
func (r *resourceStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := r.bound.check(ctx); err != nil {
		return err
	}
	return r.Interface.Create(ctx, key, obj, out, ttl)
}

// Delete implements [storage.Interface].
func (r *resourceStorage) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	if err := r.bound.check(ctx); err != nil {
		return err
	}
	return r.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
}

// Get implements [storage.Interface].
func (r *resourceStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if err := r.bound.check(ctx); err != nil {
		return err
	}
	return r.Interface.Get(ctx, key, opts, out)
}

// GetList implements [storage.Interface].
func (r *resourceStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	since, err := r.bound.since(ctx)
	if err != nil {
		return err
	}
	if err := checkAge(r.Versioner(), opts, since); err != nil {
		return err
	}
	if err := r.Interface.GetList(ctx, key, opts, out); err != nil {
		return err
	}
	return r.bound.check(ctx) // the list must not be newer than a change, and of the definition before
}

// GuaranteedUpdate implements [storage.Interface].
func (r *resourceStorage) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	if err := r.bound.check(ctx); err != nil {
		return err
	}
	return r.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached)
}

// Watch implements [storage.Interface]. The watch expires when the other definition is in force.
func (r *resourceStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	since, err := r.bound.since(ctx)
	if err != nil {
		return nil, err
	}
	from, err := r.Versioner().ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if from > 0 && int64(from) < since && (opts.SendInitialEvents == nil || !*opts.SendInitialEvents) { //nolint:gosec // revisions are positive
		return nil, errExpired()
	}
	w := newExpiring(ctx)
	if err := r.bound.register(ctx, w); err != nil {
		w.cancel()
		return nil, err
	}
	inner, err := r.Interface.Watch(w.ctx, key, opts)
	if err != nil {
		r.bound.forget(w)
		w.cancel()
		return nil, err
	}
	w.run(ctx, inner, func() { r.bound.forget(w) })
	return w, nil
}

func (b binding) register(ctx context.Context, w *expiring) error {
	b.space.classMu.Lock()
	defer b.space.classMu.Unlock()
	if err := b.checkLocked(ctx); err != nil {
		return err
	}
	b.space.classOf(b.resource.String()).watches[w] = struct{}{}
	return nil
}

// classOf returns the class of a name, which it makes for one that was always the space's own. The caller holds classMu.
func (s *Space) classOf(name string) *class {
	c := s.classes[name]
	if c == nil {
		c = &class{watches: map[*expiring]struct{}{}}
		s.classes[name] = c
	}
	return c
}

func (b binding) forget(w *expiring) {
	b.space.classMu.Lock()
	defer b.space.classMu.Unlock()
	if c := b.space.classes[b.resource.String()]; c != nil {
		delete(c.watches, w)
	}
}
