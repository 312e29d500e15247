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

// definitionOwner says whose definition of a name the API server serves.
type definitionOwner struct {
	shared      bool                   // it is the platform's, else the space's
	switchCount int64                  // the switch by which that began; 0 if there was none since the space started
	servedSince int64                  // a revision after that; 0 if nobody has asked
	watches     map[*expiring]struct{} // of custom resources, to be ended by the next switch
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
	err := informer.AddIndexers(cache.Indexers{"berth.dev/definition-owner": func(object any) ([]string, error) {
		if crd, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok {
			s.noteServed(crd)
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
	s.ownersMu.Lock()
	defer s.ownersMu.Unlock()
	if owner := s.definitionOwners[name]; owner != nil {
		for w := range owner.watches {
			w.expire()
		}
		if clear(owner.watches); !owner.shared && owner.switchCount == 0 {
			delete(s.definitionOwners, name)
		}
	}
}

// intern returns the process's copy of a shared definition, by which the API server calls its webhook.
func (s *Space) intern(object any) (any, error) {
	crd, ok := object.(*apiextensionsv1.CustomResourceDefinition)
	if !ok || !definitions.IsShared(crd) {
		return object, nil
	}
	set, _ := s.current()
	if shared := set.Of(crd.Name); shared != nil && shared.CRD.UID == crd.UID {
		return shared.Served(), nil
	}
	return definitions.Callable(crd), nil // of a switch that comes
}

// noteServed notes which definition is in the informer's store, which is locked.
func (s *Space) noteServed(crd *apiextensionsv1.CustomResourceDefinition) {
	shared := definitions.IsShared(crd)
	s.ownersMu.Lock()
	defer s.ownersMu.Unlock()
	owner := s.definitionOwners[crd.Name]
	if owner != nil && owner.shared == shared {
		return
	}
	if owner == nil && !shared {
		return // as long as there was no other
	}
	if owner != nil {
		for w := range owner.watches {
			w.expire()
		}
	}
	s.definitionOwners[crd.Name] = &definitionOwner{shared: shared, switchCount: s.switchCount.Add(1), watches: map[*expiring]struct{}{}}
}

type switchCountKey struct{}

// WithSwitchCount returns the context of a request, with the switch count when it began, and whether it is a dry run.
func (s *Space) WithSwitchCount(r *http.Request) context.Context {
	ctx := context.WithValue(r.Context(), switchCountKey{}, s.switchCount.Load())
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
	bound := o.space.bindingNow(resource)
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
	space       *Space
	resource    schema.GroupResource
	shared      bool
	switchCount int64 // as the owner of the definition had it
}

// bindingNow returns which definition of a resource the API server serves now. The handler that asks may have looked before the last change;
// [binding.check] finds that out.
func (s *Space) bindingNow(resource schema.GroupResource) binding {
	s.ownersMu.Lock()
	defer s.ownersMu.Unlock()
	b := binding{space: s, resource: resource}
	if owner := s.definitionOwners[resource.String()]; owner != nil {
		b.shared, b.switchCount = owner.shared, owner.switchCount
	}
	return b
}

var errNoRequest = errors.New("objects of a shared definition are changed by requests only")

// check refuses to use the storage of another definition than the one that the API server serves. A storage may have been made for a
// definition that its handler had looked up before the last change, and be bound to the one after it. Whoever uses that one has begun
// before the change, or comes before the handler has heard of the next change and made another storage.
func (b binding) check(ctx context.Context) error {
	b.space.ownersMu.Lock()
	defer b.space.ownersMu.Unlock()
	return b.checkLocked(ctx)
}

func (b binding) checkLocked(ctx context.Context) error {
	if err := b.space.checkMoved(b.resource); err != nil {
		return err
	}
	var switchCount int64
	if owner := b.space.definitionOwners[b.resource.String()]; owner != nil {
		switchCount = owner.switchCount
	}
	begun, isRequest := ctx.Value(switchCountKey{}).(int64)
	switch {
	case switchCount != b.switchCount, isRequest && begun < b.switchCount:
		return apierrors.NewTooManyRequests(fmt.Sprintf(
			"another CustomResourceDefinition %s has just come into force; try again", b.resource), refusal.RetrySeconds)
	case !isRequest && b.shared: // the end of the space's own definition, of which all objects are deleted
		return storage.NewInternalError(errNoRequest)
	}
	return nil
}

// servedSince returns a revision after all that clients could read of the other definition's objects, and before what they read of this one's.
func (b binding) servedSince(ctx context.Context) (int64, error) {
	known, err := b.knownServedSince(ctx, 0)
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
	return b.knownServedSince(ctx, revision)
}

// knownServedSince returns the revision, or revision if none is known, and a negative number if that is 0.
func (b binding) knownServedSince(ctx context.Context, revision int64) (int64, error) {
	b.space.ownersMu.Lock()
	defer b.space.ownersMu.Unlock()
	if err := b.checkLocked(ctx); err != nil {
		return 0, err
	}
	name := b.resource.String()
	owner := b.space.definitionOwners[name]
	if owner == nil || owner.switchCount == 0 {
		if _, kept := slices.BinarySearch(b.space.kept, name); !kept {
			return b.space.loaded, nil
		}
		// Before the space slept, it may have created or deleted its own.
	}
	owner = b.space.definitionOwnerOf(name)
	switch {
	case owner.servedSince == 0 && revision == 0:
		return -1, nil
	case owner.servedSince == 0:
		owner.servedSince = revision
	}
	return owner.servedSince, nil
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
	since, err := r.bound.servedSince(ctx)
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
	since, err := r.bound.servedSince(ctx)
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
	b.space.ownersMu.Lock()
	defer b.space.ownersMu.Unlock()
	if err := b.checkLocked(ctx); err != nil {
		return err
	}
	b.space.definitionOwnerOf(b.resource.String()).watches[w] = struct{}{}
	return nil
}

// definitionOwnerOf returns the owner of the definition of a name. There is none yet of a name that was always the space's own. The caller
// holds ownersMu.
func (s *Space) definitionOwnerOf(name string) *definitionOwner {
	owner := s.definitionOwners[name]
	if owner == nil {
		owner = &definitionOwner{watches: map[*expiring]struct{}{}}
		s.definitionOwners[name] = owner
	}
	return owner
}

func (b binding) forget(w *expiring) {
	b.space.ownersMu.Lock()
	defer b.space.ownersMu.Unlock()
	if owner := b.space.definitionOwners[b.resource.String()]; owner != nil {
		delete(owner.watches, w)
	}
}
