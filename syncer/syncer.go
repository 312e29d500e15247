// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/classes"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/pods"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/syncer/services"
	"github.com/berth-dev/berth/syncer/storage"
	"github.com/berth-dev/berth/translate"
)

// ServiceAccount is the name of the account, in each space's host namespace,
// that the space's syncer writes as.
const ServiceAccount = hostcache.ServiceAccount

// AsAccount is config as the space's own account on the host that it reaches.
func AsAccount(config *rest.Config, space translate.Space) *rest.Config {
	return hostcache.AsAccount(config, space)
}

// QuotaExceeded reports whether the host refused an object for a quota.
func QuotaExceeded(err error) bool { return engine.QuotaExceeded(err) }

// Options say what spaces share of a host, and how.
type Options = hostcache.Options

// Host is the shared host cluster as a shard sees it: one set of watches for all its spaces, and what it allocates to their
// Services. It is safe for concurrent use once started.
type Host struct {
	*hostcache.Host
	*services.Addresses
}

// NewHost prepares the watches on the cluster that config reaches. The account
// of config may impersonate the spaces' accounts, and reads, of the resources that
// are synced, objects that bear the space label in all namespaces, and all
// events, volumes, classes, nodes, ingresses, gateways and routes. Ingresses it
// reads for gateways, too: both claim host names.
func NewHost(config *rest.Config, o Options) (*Host, error) {
	h, err := hostcache.NewHost(config, o)
	if err != nil {
		return nil, err
	}
	return &Host{h, services.NewAddresses(h)}, nil
}

// Config says which space to sync.
type Config struct {
	Space translate.Space
	// Where the space's pods run.
	Where translate.Placement
	Host  *Host
	// Sync says what is synced of the space, which must be within what the host's options offer; see
	// [resources.SyncOptions.Within]. All that they offer is, if nil.
	Sync *resources.SyncOptions
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
	engine  *engine.Engine
	host    *Host
	account *services.Account // of the space on the host
}

// Stats count the work of one space's syncer since it was made.
type Stats = engine.Stats

// New prepares the syncer of a space; Run runs it.
func New(c Config) (*Syncer, error) {
	onHost, err := c.Host.Client(c.Space, c.Account)
	if err != nil {
		return nil, fmt.Errorf("make host client of space %s: %w", c.Space.Name, err)
	}
	e, err := engine.New(engine.Config{
		Space: c.Space, Host: c.Host.Host, Sync: ptr.Deref(c.Sync, c.Host.Sync), OnHost: onHost, Virtual: c.Virtual, Informers: c.Informers,
		Account: c.Account, Logger: c.Logger, Clock: c.Clock,
	})
	if err != nil {
		return nil, err
	}
	s := &Syncer{engine: e, host: c.Host, account: services.NewAccount(e.Writer)}
	e.HostAPI = s.account
	if err := s.declare(c); err != nil {
		return nil, fmt.Errorf("sync space %s: %w", c.Space.Name, err)
	}
	return s, nil
}

// declare declares the resources that are enabled, and removes the stale objects of the others.
func (s *Syncer) declare(c Config) error {
	classes := classes.New(s.engine)
	declarations := classes.Declarations()
	for _, of := range []map[string]func() error{
		pods.New(s.engine, classes, c.Where, c.Release, c.TokenKey).Declarations(),
		storage.New(s.engine, classes).Declarations(),
		services.New(s.engine).Declarations(),
	} {
		maps.Copy(declarations, of)
	}
	for _, k := range resources.Table() {
		if k.Direction == resources.InSpace {
			continue // what is made of it is another resource's
		}
		declare := declarations[k.Name]
		if declare == nil {
			return fmt.Errorf("nothing syncs %s", k.Name)
		}
		switch {
		case s.engine.Sync.On(k.Name), k.Name == resources.Nodes, k.Class && !k.Extension: // of which none may be left in the space
			if err := declare(); err != nil {
				return err
			}
		case hostcache.RemovedWhenOff(k):
			s.engine.RemoveStale(k.Name)
		}
	}
	return nil
}

// Run syncs until ctx ends, and returns when all its work has stopped. It may
// be called once.
func (s *Syncer) Run(ctx context.Context) error {
	defer s.host.Use(s.engine.Space, s.account)()
	return s.engine.Run(ctx)
}

// Idle reports whether there is nothing to do: all that both sides have shown is
// worked up, and the host's watches have shown the syncer's own writes. What
// failed and is due later does not count, see [Syncer.NextTimer].
func (s *Syncer) Idle() bool { return s.engine.Idle() }

// NextTimer is when the syncer has something to do by itself, ok is false if it
// has not: tokens of running pods to replace, reservations to give back, and
// tries to repeat that failed for the host's sake. What the host or the space's
// rules refused is not among it: it is tried again when the space wakes.
func (s *Syncer) NextTimer() (at time.Time, ok bool) { return s.engine.NextTimer() }

// Stats tells what the syncer has done.
func (s *Syncer) Stats() Stats { return s.engine.Stats() }
