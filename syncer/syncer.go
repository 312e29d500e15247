// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// Key is one unit of work: the resource's plural, and the virtual object's
// namespace and name. For events it is the host event's.
type Key struct {
	Resource string
	types.NamespacedName
}

// Config says which space to sync.
type Config struct {
	Space translate.Space
	// Where the space's pods run.
	Where translate.Placement
	Host  *Host
	// Virtual reaches the space's API with all rights.
	Virtual *rest.Config
	// Release of Kubernetes that the space's API says it is; virtual nodes
	// say the same.
	Release string
	// TokenKey is the ID of the key that signs the space's service-account tokens. Pods whose tokens another signed
	// get new ones. Default: whatever signed them, tokens are replaced only when they are about to end.
	TokenKey string
	// Informers of the space, shared with its controllers.
	Informers informers.SharedInformerFactory
	// Account of the space: what it uses of what is bounded. Nothing is if nil.
	Account *bounds.Account
	Logger  logr.Logger
	Clock   clock.PassiveClock // the system clock if nil
}

// Syncer syncs one space with its host namespace.
type Syncer struct {
	space      translate.Space
	where      translate.Placement
	release    string
	host       *Host
	writer     *writer // the host, as the space's account
	toSpace    *rest.Config
	virtualAPI client.Client
	metadata   metadata.Interface
	informers  informers.SharedInformerFactory
	recorder   *eventRecorder
	clock      clock.PassiveClock
	logger     logr.Logger

	queue        *queue
	shortages    *shortages
	bytes        *ledger     // of host objects
	hostNames    *ledger     // that ingresses, gateways and routes claim
	failing      atomic.Bool // something that failed is to be tried again
	lastHastened atomic.Int64
	counters     counters
	processor    *computing
	creates      pendingCreates
	// tokens of pods that were written.
	tokens    tokenWrites
	tokenKey  string
	tokenPace *rate.Limiter
	account   *bounds.Account // nil in tests
	// soon and later say when to try again what failed: soon if the syncer could
	// not do it, later if it is not for the syncer to do.
	soon, later workqueue.TypedRateLimiter[Key]
	work        map[string]func(context.Context, types.NamespacedName) (again time.Duration, err error)
	sources     sources
	names       map[string]*nameWatch
	ownNodes    ownNodes
	synced      []cache.DoneChecker
	counts      []func()                             // each counts what there is of a resource on the host
	extended    map[cache.SharedIndexInformer]*added // by informer
	added       map[string]*added                    // by resource
}

// New prepares the syncer of a space; Run runs it.
func New(c Config) (*Syncer, error) {
	s := &Syncer{
		space: c.Space, where: c.Where, release: c.Release, host: c.Host, informers: c.Informers, clock: c.Clock, logger: c.Logger,
		soon:    workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstRetry, lastRetry),
		later:   workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstLater, lastRetry),
		work:    map[string]func(context.Context, types.NamespacedName) (time.Duration, error){},
		creates: pendingCreates{of: map[object]*pendingCreate{}}, account: c.Account,
		tokenKey: c.TokenKey, tokenPace: newTokenPace(),
		names: map[string]*nameWatch{}, extended: map[cache.SharedIndexInformer]*added{}, added: map[string]*added{},
	}
	s.queue = newQueue(workers, s.reconcile)
	s.shortages = newShortages(s.queue, func(short bool) {
		if short {
			c.Host.short.Store(c.Space.Name, struct{}{})
		} else {
			c.Host.short.Delete(c.Space.Name)
		}
	})
	c.Host.short.Delete(c.Space.Name) // it may fit by now; if not, its tries will say so
	s.work[probes] = s.shortages.probe
	s.work[podsIn] = s.enqueuePodsIn
	s.fromHost(quotas, func(client.Object, func(Key)) { s.shortages.ease() })
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	s.processor = newComputing(s.clock)
	onHost, err := c.Host.newAccount(c.Space, c.Account)
	if err != nil {
		return nil, fmt.Errorf("make host client of space %s: %w", c.Space.Name, err)
	}
	s.bytes = newLedger(bounds.SyncedBytes, c.Account, s.clock, s.shownOnHost, s.queue.add)
	s.hostNames = newLedger(bounds.IngressHostnames, c.Account, s.clock, s.shownOnHost, s.queue.add)
	s.writer = newWriter(&bounded{onHost, s.bytes, newPace(c.Account, s.clock), s.wrote}, c.Host)
	if err := s.reach(c.Virtual); err != nil {
		return nil, fmt.Errorf("make client of space %s: %w", c.Space.Name, err)
	}
	if err := s.declare(); err != nil {
		return nil, fmt.Errorf("sync space %s: %w", c.Space.Name, err)
	}
	return s, nil
}

// declare declares the resources that are enabled, and removes the stale objects of the others.
func (s *Syncer) declare() error {
	for _, k := range resources.Table() {
		if k.Direction == resources.InSpace {
			continue // what is made of it is another resource's
		}
		declare := map[string]func() error{
			resources.Pods: s.syncPods, resources.Nodes: s.syncNodes, resources.Services: s.syncServices, resources.EndpointSlices: s.syncEndpointSlices,
			resources.ConfigMaps: s.syncConfigMaps, resources.Secrets: s.syncSecrets, resources.Claims: s.syncClaims, resources.Volumes: s.syncVolumes,
			resources.Ingresses: s.syncIngresses, resources.NetworkPolicies: s.syncNetworkPolicies, resources.Budgets: s.syncBudgets,
			resources.ServiceAccounts: s.syncServiceAccounts, resources.Events: s.syncEvents,
			resources.StorageClasses: s.syncStorageClasses, resources.IngressClasses: s.syncIngressClasses,
			resources.RuntimeClasses: s.syncRuntimeClasses, resources.PriorityClasses: s.syncPriorityClasses,
			resources.ExportedPriorityClasses: s.syncExportedPriorityClasses, resources.ExportedStorageClasses: s.syncExportedStorageClasses,
			resources.VolumeSnapshots: s.syncSnapshots, resources.SnapshotClasses: s.syncSnapshotClasses,
			resources.Gateways: s.syncGateways, resources.HTTPRoutes: s.syncHTTPRoutes, resources.GatewayClasses: s.syncGatewayClasses,
		}[k.Name]
		if declare == nil {
			return fmt.Errorf("nothing syncs %s", k.Name)
		}
		_, extended := extensions()[k.Name]
		switch {
		case s.host.sync.On(k.Name), k.Name == resources.Nodes, isClass(k.Name) && !extended: // of which none may be left in the space
			if err := declare(); err != nil {
				return err
			}
		case removedWhenOff(k):
			s.removeStale(k.Name)
		}
	}
	return nil
}

// reach makes the clients of the space's API.
func (s *Syncer) reach(space *rest.Config) (err error) {
	config := rest.CopyConfig(space)
	config.UserAgent = "berth-syncer"
	config.RateLimiter = newRequestLimiter()
	s.toSpace = config
	if s.virtualAPI, err = newClient(config, s.host.mapper); err != nil {
		return err
	}
	if s.metadata, err = metadata.NewForConfig(config); err != nil {
		return err
	}
	core, err := typedcorev1.NewForConfig(config)
	s.recorder = &eventRecorder{events: core}
	return err
}
