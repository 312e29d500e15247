// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
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

// Key is one unit of work: the plural name of the resource, and the namespace and name of the virtual object. For
// events, they are those of the host's event.
type Key struct {
	Resource string
	types.NamespacedName
}

// Config configures the engine of one space.
type Config struct {
	Space translate.Space
	Host  *hostcache.Host
	// Sync says what is synced of the space. It is within the host's options.
	Sync resources.SyncOptions
	// OnHost is a client of the host that acts as the space's own account.
	OnHost client.Client
	// Virtual is a configuration for clients of the space's API with all rights.
	Virtual *rest.Config
	// Informers are the informers of the space, shared with its controllers.
	Informers informers.SharedInformerFactory
	// QuotaShort, if set, is called with what was requested when the host rejects an object because of the space's quota. It must not block.
	QuotaShort func(requested corev1.ResourceList)
	// Hides, if set, reports whether the space has an object stored, although its API may not show it, because another definition of its
	// kind may be in force. Then its host object stays.
	Hides func(ctx context.Context, group, namespace, name string, uid types.UID) (bool, error)
	// Account counts what the space uses of limited resources. Nothing is counted if it is nil.
	Account *bounds.Account
	Logger  logr.Logger
	Clock   clock.PassiveClock // the system clock if nil
}

// Engine is the part of one space's syncer that is the same for all resources.
type Engine struct {
	Space  translate.Space
	Host   *hostcache.Host
	Sync   resources.SyncOptions
	Writer *Writer // writes to the host as the space's account
	// HostAPI is the writer, or a wrapper of it that exposes services.
	HostAPI    client.Client
	toSpace    *rest.Config
	VirtualAPI client.Client
	metadata   metadata.Interface
	Informers  informers.SharedInformerFactory
	Recorder   *eventRecorder
	Clock      clock.PassiveClock
	logger     logr.Logger
	// NamedNodes, if set, returns the host's names and the aliases of the nodes that an object asks for, because the
	// host's messages may contain the names.
	NamedNodes func(client.Object) [][2]string

	Queue        *Queue
	shortages    *shortages
	quotaShort   func(corev1.ResourceList)
	hides        func(ctx context.Context, group, namespace, name string, uid types.UID) (bool, error)
	bytes        *ledger     // bytes of host objects
	HostNames    *ledger     // host names that ingresses, gateways, and routes claim
	failing      atomic.Bool // something failed that must be retried
	lastHastened atomic.Int64
	counters     counters
	processor    *computing
	creates      pendingCreates
	account      *bounds.Account // nil in tests
	// soon and later are the pauses before a retry: soon for errors of the syncer, later for what the syncer can't
	// change.
	soon, later workqueue.TypedRateLimiter[Key]
	// Work processes keys, by their resource.
	Work     map[string]func(context.Context, types.NamespacedName) (again time.Duration, err error)
	Sources  sources
	names    map[string]*nameWatch
	synced   []cache.DoneChecker
	counts   []func()                             // each updates the number of host objects of a resource
	extended map[cache.SharedIndexInformer]*added // by informer
	added    map[string]*added                    // by resource
}

// New returns an engine without resources.
func New(c Config) (*Engine, error) {
	s := &Engine{
		Space: c.Space, Host: c.Host, Sync: c.Sync, Informers: c.Informers, Clock: c.Clock, logger: c.Logger, quotaShort: c.QuotaShort, hides: c.Hides,
		soon:    workqueue.NewTypedItemExponentialFailureRateLimiter[Key](FirstRetry, lastRetry),
		later:   workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstLater, lastRetry),
		Work:    map[string]func(context.Context, types.NamespacedName) (time.Duration, error){},
		creates: pendingCreates{of: map[hostcache.Object]*pendingCreate{}}, account: c.Account,
		names: map[string]*nameWatch{}, extended: map[cache.SharedIndexInformer]*added{}, added: map[string]*added{},
	}
	s.Queue = newQueue(workers, s.reconcile)
	s.shortages = newShortages(s.Queue, func(short bool) { c.Host.SetShort(c.Space.Name, short) })
	c.Host.SetShort(c.Space.Name, false) // retries report it again if there is still too little quota
	s.Work[probes] = s.shortages.probe
	s.FromHost(hostcache.Quotas, func(client.Object, func(Key)) { s.shortages.ease() })
	if s.Clock == nil {
		s.Clock = clock.RealClock{}
	}
	s.processor = newComputing(s.Clock)
	s.bytes = newLedger(bounds.SyncedBytes, c.Account, s.Clock, s.shownOnHost, s.Queue.Add)
	s.HostNames = newLedger(bounds.IngressHostnames, c.Account, s.Clock, s.shownOnHost, s.Queue.Add)
	s.Writer = NewWriter(&bounded{c.OnHost, c.Host, s.bytes, newPace(c.Account, s.Clock), s.wrote}, c.Host)
	s.HostAPI = s.Writer
	if err := s.reach(c.Virtual); err != nil {
		return nil, fmt.Errorf("make client of space %s: %w", c.Space.Name, err)
	}
	return s, nil
}

// reach creates the clients of the space's API.
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
	// requestRate is how many requests a syncer sends to its space in a second, after a burst of requestsAtOnce.
	// Without a limit, a tenant's admission policy that changes the statuses that the syncer writes would make it write
	// them again continuously. Controllers of a space have the same rate.
	requestRate = 200
	// requestsAtOnce is enough for a burst of some thousand pods that are created and run.
	requestsAtOnce = 20_000
)

// newRequestLimiter returns the limiter of all clients of one space.
func newRequestLimiter() flowcontrol.RateLimiter {
	return flowcontrol.NewTokenBucketRateLimiter(requestRate, requestsAtOnce)
}
