// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-dev/berth/translate"
)

// Names of the synced kinds: their plurals, as in URLs.
const (
	pods           = "pods"
	services       = "services"
	configMaps     = "configmaps"
	secrets        = "secrets"
	claims         = "persistentvolumeclaims"
	volumes        = "persistentvolumes"
	endpointSlices = "endpointslices"
	storageClasses = "storageclasses"
	events         = "events"
)

// Key is one unit of work: the kind's plural, and the virtual object's
// namespace and name. For events it is the host event's.
type Key struct {
	Kind string
	types.NamespacedName
}

// Config says which space to sync.
type Config struct {
	Space translate.Space
	Host  *Host
	// Virtual reaches the space's API with all rights.
	Virtual *rest.Config
	// Informers of the space, shared with its controllers.
	Informers informers.SharedInformerFactory
	Logger    logr.Logger
	Clock     clock.PassiveClock // the wall clock if nil
}

// Syncer syncs one space with its host namespace.
type Syncer struct {
	space      translate.Space
	host       *Host
	writer     client.Client // the host, as the space's account
	virtualAPI client.Client
	clientset  kubernetes.Interface // the space
	informers  informers.SharedInformerFactory
	recorder   record.EventRecorder
	clock      clock.PassiveClock
	later      workqueue.TypedRateLimiter[Key]
	logger     logr.Logger

	kinds   map[string]func(context.Context, types.NamespacedName) (reconcile.Result, error)
	sources []addSource
	synced  []cache.InformerSynced
}

// New prepares the syncer of a space; Run runs it.
func New(c Config) (*Syncer, error) {
	virtual := rest.CopyConfig(c.Virtual)
	virtual.UserAgent = "berth-syncer"
	s := &Syncer{
		space: c.Space, host: c.Host, informers: c.Informers, clock: c.Clock, logger: c.Logger,
		later: workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstLater, lastRetry),
		kinds: map[string]func(context.Context, types.NamespacedName) (reconcile.Result, error){},
	}
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	var err error
	if s.writer, err = c.Host.writer(c.Space); err != nil {
		return nil, fmt.Errorf("make host client of space %s: %w", c.Space.Name, err)
	}
	if s.virtualAPI, err = newClient(virtual); err != nil {
		return nil, fmt.Errorf("make client of space %s: %w", c.Space.Name, err)
	}
	if s.clientset, err = kubernetes.NewForConfig(virtual); err != nil {
		return nil, fmt.Errorf("make client of space %s: %w", c.Space.Name, err)
	}
	for _, declare := range []func() error{
		s.syncPods, s.syncServices, s.syncEndpointSlices, s.syncConfigMaps, s.syncSecrets,
		s.syncClaims, s.syncVolumes, s.syncStorageClasses, s.syncEvents,
	} {
		if err := declare(); err != nil {
			return nil, fmt.Errorf("sync space %s: %w", c.Space.Name, err)
		}
	}
	return s, nil
}

// add declares a kind that is synced down: its work and both sides' events.
// also, if set, is told each virtual object that came, changed or went.
func add[T client.Object](k *kind[T], also func(v T, enqueue func(Key))) {
	s := k.Syncer
	s.kinds[k.name] = k.reconcile
	s.fromSpace(k.virtual, func(obj client.Object, enqueue func(Key)) {
		enqueue(Key{Kind: k.name, NamespacedName: client.ObjectKeyFromObject(obj)})
		if v, ok := obj.(T); ok && also != nil {
			also(v, enqueue)
		}
	})
	s.fromHost(k.name, func(obj client.Object, enqueue func(Key)) {
		key, ok := keyOf(k.name, obj)
		if host, is := obj.(T); !ok && is && k.belongs != nil {
			key, ok = k.belongs(host)
		}
		if ok {
			enqueue(key)
		}
	})
}

// fromSpace feeds the queue from an informer of the space.
func (s *Syncer) fromSpace(informer cache.SharedIndexInformer, lead func(client.Object, func(Key))) {
	s.synced = append(s.synced, informer.HasSynced)
	s.sources = append(s.sources, func(enqueue func(Key)) (func(), error) {
		receive := func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			if o, ok := obj.(client.Object); ok {
				lead(o, enqueue)
			}
		}
		handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: receive, UpdateFunc: func(_, obj any) { receive(obj) }, DeleteFunc: receive,
		})
		if err != nil {
			return nil, fmt.Errorf("watch the space: %w", err)
		}
		return func() { _ = informer.RemoveEventHandler(handle) }, nil
	})
}

// fromHost feeds the queue from the shared watch of a kind on the host.
func (s *Syncer) fromHost(kind string, lead func(client.Object, func(Key))) {
	s.sources = append(s.sources, func(enqueue func(Key)) (func(), error) {
		return s.host.fanouts[kind].subscribe(s.space.Name, func(obj client.Object) { lead(obj, enqueue) })
	})
}
