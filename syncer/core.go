// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

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
	"github.com/berth-dev/berth/translate"
)

// Key is one unit of work: the resource's plural, and the virtual object's
// namespace and name. For events it is the host event's.
type Key struct {
	Resource string
	types.NamespacedName
}

// EngineConfig says which space an engine is of.
type EngineConfig struct {
	Space translate.Space
	Host  *Host
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
	space  translate.Space
	host   *Host
	writer *writer // the host, as the space's account
	// hostAPI is the writer, or what exposes services by it.
	hostAPI    client.Client
	toSpace    *rest.Config
	virtualAPI client.Client
	metadata   metadata.Interface
	informers  informers.SharedInformerFactory
	recorder   *eventRecorder
	clock      clock.PassiveClock
	logger     logr.Logger
	// namedNodes, if set, returns the host's names of the nodes that an object asks for, each with its alias: what the
	// host says may name them.
	namedNodes func(client.Object) [][2]string

	queue        *queue
	shortages    *shortages
	bytes        *ledger     // of host objects
	hostNames    *ledger     // that ingresses, gateways and routes claim
	failing      atomic.Bool // something that failed is to be tried again
	lastHastened atomic.Int64
	counters     counters
	processor    *computing
	creates      pendingCreates
	account      *bounds.Account // nil in tests
	// soon and later say when to try again what failed: soon if the syncer could
	// not do it, later if it is not for the syncer to do.
	soon, later workqueue.TypedRateLimiter[Key]
	// work is what is done about a key, by its resource.
	work     map[string]func(context.Context, types.NamespacedName) (again time.Duration, err error)
	sources  sources
	names    map[string]*nameWatch
	synced   []cache.DoneChecker
	counts   []func()                             // each counts what there is of a resource on the host
	extended map[cache.SharedIndexInformer]*added // by informer
	added    map[string]*added                    // by resource
}

// newEngine prepares an engine, which has no resources yet.
func newEngine(c EngineConfig) (*Engine, error) {
	s := &Engine{
		space: c.Space, host: c.Host, informers: c.Informers, clock: c.Clock, logger: c.Logger,
		soon:    workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstRetry, lastRetry),
		later:   workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstLater, lastRetry),
		work:    map[string]func(context.Context, types.NamespacedName) (time.Duration, error){},
		creates: pendingCreates{of: map[object]*pendingCreate{}}, account: c.Account,
		names: map[string]*nameWatch{}, extended: map[cache.SharedIndexInformer]*added{}, added: map[string]*added{},
	}
	s.queue = newQueue(workers, s.reconcile)
	s.shortages = newShortages(s.queue, func(short bool) { c.Host.SetShort(c.Space.Name, short) })
	c.Host.SetShort(c.Space.Name, false) // it may fit by now; if not, its tries will say so
	s.work[probes] = s.shortages.probe
	s.fromHost(quotas, func(client.Object, func(Key)) { s.shortages.ease() })
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	s.processor = newComputing(s.clock)
	s.bytes = newLedger(bounds.SyncedBytes, c.Account, s.clock, s.shownOnHost, s.queue.add)
	s.hostNames = newLedger(bounds.IngressHostnames, c.Account, s.clock, s.shownOnHost, s.queue.add)
	s.writer = newWriter(&bounded{c.OnHost, s.bytes, newPace(c.Account, s.clock), s.wrote}, c.Host)
	s.hostAPI = s.writer
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
	if s.virtualAPI, err = s.host.newClient(config); err != nil {
		return err
	}
	if s.metadata, err = metadata.NewForConfig(config); err != nil {
		return err
	}
	core, err := typedcorev1.NewForConfig(config)
	s.recorder = &eventRecorder{events: core}
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
