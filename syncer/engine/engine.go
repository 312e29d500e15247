// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// Key is one unit of work: the resource's plural, and the virtual object's
// namespace and name. For events it is the host event's.
type Key struct {
	Resource string
	types.NamespacedName
}

// Config says which space an engine is of.
type Config struct {
	Space translate.Space
	Host  *hostcache.Host
	// Sync says what is synced of the space: what the host's options offer, or less.
	Sync resources.SyncOptions
	// OnHost acts on the host as the space's own account.
	OnHost client.Client
	// Virtual reaches the space's API with all rights.
	Virtual *rest.Config
	// Informers of the space, shared with its controllers.
	Informers informers.SharedInformerFactory
	// Account of the space: what it uses of what is bounded. Nothing is if nil.
	Account *bounds.Account
	Logger  logr.Logger
	Clock   clock.PassiveClock // the system clock if nil
}

// Engine does the work of one space's syncer, whatever the resource.
type Engine struct {
	Space  translate.Space
	Host   *hostcache.Host
	Sync   resources.SyncOptions
	Writer *Writer // the host, as the space's account
	// HostAPI is the writer, or what exposes services by it.
	HostAPI    client.Client
	toSpace    *rest.Config
	VirtualAPI client.Client
	metadata   metadata.Interface
	Informers  informers.SharedInformerFactory
	Recorder   *eventRecorder
	Clock      clock.PassiveClock
	logger     logr.Logger
	// NamedNodes, if set, returns the host's names of the nodes that an object asks for, each with its alias: what the
	// host says may name them.
	NamedNodes func(client.Object) [][2]string

	Queue        *Queue
	shortages    *shortages
	bytes        *ledger     // of host objects
	HostNames    *ledger     // that ingresses, gateways and routes claim
	failing      atomic.Bool // something that failed is to be tried again
	lastHastened atomic.Int64
	counters     counters
	processor    *computing
	creates      pendingCreates
	account      *bounds.Account // nil in tests
	// soon and later say when to try again what failed: soon if the syncer could
	// not do it, later if it is not for the syncer to do.
	soon, later workqueue.TypedRateLimiter[Key]
	// Work is what is done about a key, by its resource.
	Work     map[string]func(context.Context, types.NamespacedName) (again time.Duration, err error)
	Sources  sources
	names    map[string]*nameWatch
	synced   []cache.DoneChecker
	counts   []func()                             // each counts what there is of a resource on the host
	extended map[cache.SharedIndexInformer]*added // by informer
	added    map[string]*added                    // by resource
}

// New prepares an engine, which has no resources yet.
func New(c Config) (*Engine, error) {
	s := &Engine{
		Space: c.Space, Host: c.Host, Sync: c.Sync, Informers: c.Informers, Clock: c.Clock, logger: c.Logger,
		soon:    workqueue.NewTypedItemExponentialFailureRateLimiter[Key](FirstRetry, lastRetry),
		later:   workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstLater, lastRetry),
		Work:    map[string]func(context.Context, types.NamespacedName) (time.Duration, error){},
		creates: pendingCreates{of: map[hostcache.Object]*pendingCreate{}}, account: c.Account,
		names: map[string]*nameWatch{}, extended: map[cache.SharedIndexInformer]*added{}, added: map[string]*added{},
	}
	s.Queue = newQueue(workers, s.reconcile)
	s.shortages = newShortages(s.Queue, func(short bool) { c.Host.SetShort(c.Space.Name, short) })
	c.Host.SetShort(c.Space.Name, false) // it may fit by now; if not, its tries will say so
	s.Work[probes] = s.shortages.probe
	s.FromHost(hostcache.Quotas, func(client.Object, func(Key)) { s.shortages.ease() })
	if s.Clock == nil {
		s.Clock = clock.RealClock{}
	}
	s.processor = newComputing(s.Clock)
	s.bytes = newLedger(bounds.SyncedBytes, c.Account, s.Clock, s.shownOnHost, s.Queue.Add)
	s.HostNames = newLedger(bounds.IngressHostnames, c.Account, s.Clock, s.shownOnHost, s.Queue.Add)
	s.Writer = NewWriter(&bounded{c.OnHost, s.bytes, newPace(c.Account, s.Clock), s.wrote}, c.Host)
	s.HostAPI = s.Writer
	if err := s.reach(c.Virtual); err != nil {
		return nil, fmt.Errorf("make client of space %s: %w", c.Space.Name, err)
	}
	return s, nil
}

// reach makes the clients of the space's API.
func (s *Engine) reach(space *rest.Config) (err error) {
	config := rest.CopyConfig(space)
	config.UserAgent = "berth-syncer"
	config.RateLimiter = newRequestLimiter()
	s.toSpace = config
	if s.VirtualAPI, err = s.Host.NewClient(config); err != nil {
		return err
	}
	if s.metadata, err = metadata.NewForConfig(config); err != nil {
		return err
	}
	core, err := typedcorev1.NewForConfig(config)
	s.Recorder = &eventRecorder{events: core}
	return err
}

const (
	// requestRate is how many requests a syncer makes to its space in a second, once it has made requestsAtOnce. Without a limit,
	// a tenant's policy that changes the statuses that the syncer writes keeps it writing, as fast as it can and without an end.
	// Controllers of a space have the same rate.
	requestRate = 200
	// requestsAtOnce is as many as for some thousand pods that are created in one burst, and run.
	requestsAtOnce = 20_000
)

// newRequestLimiter is for all clients of one space.
func newRequestLimiter() flowcontrol.RateLimiter {
	return flowcontrol.NewTokenBucketRateLimiter(requestRate, requestsAtOnce)
}
