// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/heapsize"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// FromExtension returns an informer of the space's objects of a resource, converted by [syncer.typed]. It starts when
// [Engine.install] has installed the resource.
func (s *Engine) FromExtension(resource string) (cache.SharedIndexInformer, error) {
	if a := s.added[resource]; a != nil {
		return a.informer, nil
	}
	r := resources.Of(resource)
	api, err := dynamic.NewForConfig(s.toSpace)
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", resource, err)
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(api, r.GVR(), metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	if err := informer.SetTransform(func(obj any) (any, error) { return typed(r, obj) }); err != nil {
		return nil, fmt.Errorf("watch %s: %w", resource, err)
	}
	a := &added{resource: resource, informer: informer}
	s.extended[informer], s.added[resource] = a, a
	return informer, nil
}

// FromDeclared is like [Engine.FromExtension], for the objects of a declaration, as they are. The platform gives the space the definition.
func (s *Engine) FromDeclared(d *declaration.Declaration) (cache.SharedIndexInformer, error) {
	api, err := dynamic.NewForConfig(s.toSpace)
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", d.Name, err)
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(api, d.GVR, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	strip := func(obj any) (any, error) {
		if o, ok := obj.(client.Object); ok {
			o.SetManagedFields(nil)
		}
		return obj, nil
	}
	if err := informer.SetTransform(strip); err != nil {
		return nil, fmt.Errorf("watch %s: %w", d.Name, err)
	}
	a := &added{resource: d.Name, informer: informer, given: true, quiet: d.FromHost}
	err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		a.failed.Store(true) // a tenant may have its own server answer
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", d.Name, err)
	}
	s.extended[informer], s.added[d.Name] = a, a
	return informer, nil
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
	given    bool        // the platform gives the space the definition
	quiet    bool        // the objects are copies of the host's, for which no space has to stay awake
	failed   atomic.Bool // of given: the objects could not be read
	state    atomic.Int32
}

// These are the states of the definition of an extension.
const (
	asked   int32 = iota // nothing yet
	failed               // it could not be created, and is retried
	foreign              // the tenant has a definition with that name, which stays
	ours
)

// mayRest reports whether a space may sleep although something of a resource can't be done now.
func (s *Engine) mayRest(resource string) bool {
	a := s.added[resource]
	return resources.Of(resource).Class || a != nil && a.quiet
}

// hasSynced reports whether an extension's informer, whose state synced returns, has enqueued all existing objects. An
// informer that does not run counts as synced, because a tenant must not be able to keep its space awake with
// definitions.
func (a *added) hasSynced(synced func() bool) bool {
	switch a.state.Load() {
	case asked:
		return false
	case ours:
		return synced() || a.failed.Load()
	default:
		return true
	}
}

// runExtension runs an informer of the space until ctx ends, and counts its memory.
func (s *Engine) runExtension(ctx context.Context, informer cache.SharedIndexInformer) {
	counter, err := heapsize.Count(informer, func(bytes int64) { s.account.Add(bounds.CachedBytes, bytes) })
	if err != nil {
		return // it has stopped
	}
	defer counter.Stop()
	informer.RunWithContext(ctx)
}

// defined reports whether a resource is defined in the space, so that there may be work, and if not, whether it may be
// later.
func (s *Engine) defined(resource string) (now, later bool) {
	a := s.added[resource]
	if a == nil {
		return true, true // Kubernetes has it
	}
	state := a.state.Load()
	return state == ours, state != foreign
}

// ErrUnsettled means that it is not known yet which objects of a resource the space has.
var ErrUnsettled = errors.New("the space's objects are not known yet")

// Settled reports whether it is known which objects of a resource the space has. Before, none may be treated as
// deleted.
func (s *Engine) Settled(resource string) bool {
	a := s.added[resource]
	if a == nil {
		return true
	}
	state := a.state.Load()
	return state == foreign || state == ours && a.informer.HasSynced()
}

const (
	installPoll  = 50 * time.Millisecond
	installRetry = 30 * time.Second
)

// install creates the definitions of synced extensions in the space, and runs their informers until ctx ends. If a
// tenant changes a definition, this affects only that resource.
func (s *Engine) install(ctx context.Context, running *sync.WaitGroup) {
	for informer, a := range maps.All(s.extended) {
		safego.Go(running, "sync an extension", func() {
			if a.given {
				a.state.Store(ours)
				s.runExtension(ctx, informer)
				return
			}
			for ctx.Err() == nil {
				is, err := s.define(ctx, s.Host.Definitions[a.resource])
				switch {
				case err == nil && is:
					a.state.Store(ours)
					s.runExtension(ctx, informer)
					return
				case err == nil:
					a.state.Store(foreign)
					return
				}
				a.state.Store(failed)
				s.logger.Error(err, "Could not create a CustomResourceDefinition in the space; Berth retries", "resource", a.resource)
				select {
				case <-time.After(installRetry):
				case <-ctx.Done():
				}
			}
		}, nil)
	}
}

// define creates or repairs a definition, and waits until it is served. It returns false if the tenant created the
// definition.
func (s *Engine) define(ctx context.Context, want *apiextensionsv1.CustomResourceDefinition) (ours bool, err error) {
	mended := false // repair only once, as another API version may always show differences
	err = wait.PollUntilContextTimeout(ctx, installPoll, installRetry, true, func(ctx context.Context) (bool, error) {
		have := &apiextensionsv1.CustomResourceDefinition{}
		err := s.VirtualAPI.Get(ctx, client.ObjectKeyFromObject(want), have)
		switch {
		case apierrors.IsNotFound(err):
			return false, ignoreRace(s.VirtualAPI.Create(ctx, want.DeepCopy()))
		case err != nil:
			return false, err
		}
		if ours = have.Labels[translate.LabelManagedBy] == translate.ManagedBy; !ours {
			return true, nil
		}
		if !mended && !equality.Semantic.DeepEqual(want.Spec, have.Spec) {
			have.Spec = want.Spec
			err := s.VirtualAPI.Update(ctx, have)
			mended = err == nil
			return false, ignoreRace(err)
		}
		for _, c := range have.Status.Conditions {
			switch {
			case c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse:
				return false, fmt.Errorf("define %s: %s", want.Name, c.Message)
			case c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue:
				return true, nil
			}
		}
		return false, nil
	})
	return ours, err
}

// ignoreRace ignores errors that mean that somebody else was faster.
func ignoreRace(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
