// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/sharing"
	"github.com/berth-dev/berth/syncer/classes"
	"github.com/berth-dev/berth/syncer/custom"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/patches"
	"github.com/berth-dev/berth/syncer/pods"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/syncer/services"
	"github.com/berth-dev/berth/syncer/shares"
	"github.com/berth-dev/berth/syncer/storage"
	"github.com/berth-dev/berth/translate"
)

// ServiceAccount is the name of the service account in each space's host namespace that the space's syncer writes with.
const ServiceAccount = hostcache.ServiceAccount

// AsAccount returns a copy of config that acts as the space's service account on the host.
func AsAccount(config *rest.Config, space translate.Space) *rest.Config {
	return hostcache.AsAccount(config, space)
}

// QuotaExceeded reports whether the host rejected an object because of a quota.
func QuotaExceeded(err error) bool { return engine.QuotaExceeded(err) }

// Options configure what is synced of all spaces of a host.
type Options = hostcache.Options

// Host is a shard's view of the host cluster: one set of watches for all spaces, and the addresses that the host
// allocates for their Services. It is safe for concurrent use after it has started.
type Host struct {
	*hostcache.Host
	*services.Addresses
}

// NewHost prepares the watches on the cluster of config. The account of config must be allowed to impersonate the
// spaces' accounts, and to read: objects of synced resources with the space label, in all namespaces, and all events,
// volumes, classes, nodes, ingresses, gateways, and routes. Ingresses are also read when only gateways are synced,
// because both claim host names.
func NewHost(config *rest.Config, o Options) (*Host, error) {
	h, err := hostcache.NewHost(config, o)
	if err != nil {
		return nil, err
	}
	return &Host{h, services.NewAddresses(h)}, nil
}

// Config configures the syncer of one space.
type Config struct {
	Space translate.Space
	// Where is the placement of the space's pods.
	Where translate.Placement
	Host  *Host
	// Sync says what is synced of the space. It must be within the host's options; see [resources.SyncOptions.Within].
	// Nil means all that these allow.
	Sync *resources.SyncOptions
	// Patches are an admin's changes of the space's host pods; nil if there are none.
	Patches *patches.Patches
	// Declared are the custom resources that are synced, too. The host's watches of them have synced, and the space has their definitions.
	Declared []*declaration.Declaration
	// Withdraw, if set, deletes the space's objects on the host that name Services, of custom resources that aren't in Declared. It is called
	// before a Service leads out of the space, and returns an error unless they are gone.
	Withdraw func(context.Context) error
	// Hides, if set, reports whether the space has an object stored, although its API may not show it, because another definition of its
	// kind may be in force. Then its host object stays.
	Hides func(ctx context.Context, group, namespace, name string, uid types.UID) (bool, error)
	// Tenant, if set, returns the tenant of the space; empty if it has none.
	Tenant func() string
	// Virtual is a configuration for clients of the space's API with all rights.
	Virtual *rest.Config
	// Release is the release of Kubernetes that the space's API reports. Virtual nodes report the same.
	Release string
	// TokenKey is the ID of the key that signs the space's service-account tokens. Pods with tokens of another key get
	// new ones. If it is empty, tokens are replaced only shortly before they expire.
	TokenKey string
	// Informers are the informers of the space, shared with its controllers.
	Informers informers.SharedInformerFactory
	// QuotaShort, if set, is called with what was requested when the host rejects an object because of the space's quota. It must not block.
	QuotaShort func(requested corev1.ResourceList)
	// Shares finds what owners share with the tenants below. Nothing is shared if it is nil.
	Shares sharing.Source
	// Account counts what the space uses of limited resources. Nothing is counted if it is nil.
	Account *bounds.Account
	Logger  logr.Logger
	Clock   clock.PassiveClock // the system clock if nil
}

// Syncer syncs one space with its host namespace.
type Syncer struct {
	engine  *engine.Engine
	host    *Host
	account *services.Account // writes to the host as the space
}

// Stats count what one space's syncer has done since it was created.
type Stats = engine.Stats

// New returns the syncer of a space. Run starts it.
func New(c Config) (*Syncer, error) {
	onHost, err := c.Host.Client(c.Space, c.Account)
	if err != nil {
		return nil, fmt.Errorf("make host client of space %s: %w", c.Space.Name, err)
	}
	e, err := engine.New(engine.Config{
		Space: c.Space, Host: c.Host.Host, Sync: ptr.Deref(c.Sync, c.Host.Sync), OnHost: onHost, Virtual: c.Virtual, Informers: c.Informers,
		QuotaShort: c.QuotaShort, Hides: c.Hides, Account: c.Account, Logger: c.Logger, Clock: c.Clock,
	})
	if err != nil {
		return nil, err
	}
	s := &Syncer{engine: e, host: c.Host, account: services.NewAccount(e.Writer)}
	e.HostAPI = s.account
	if err := s.declare(c); err != nil {
		return nil, fmt.Errorf("sync space %s: %w", c.Space.Name, err)
	}
	if c.Shares != nil {
		shares.Declare(e, onHost, c.Shares)
	}
	return s, nil
}

// declare declares the enabled resources, and deletes the stale objects of the others.
func (s *Syncer) declare(c Config) error {
	classes := classes.New(s.engine)
	services := services.New(s.engine, c.Withdraw)
	declarations := classes.Declarations()
	for _, of := range []map[string]func() error{
		pods.New(s.engine, pods.Config{
			Classes: classes, Where: c.Where, Release: c.Release, TokenKey: c.TokenKey, Patches: c.Patches, Tenant: c.Tenant,
		}).Declarations(),
		storage.New(s.engine, classes).Declarations(),
		services.Declarations(),
	} {
		maps.Copy(declarations, of)
	}
	for _, k := range resources.Table() {
		if k.Direction == resources.InSpace {
			continue // another resource declares what is made of it
		}
		declare := declarations[k.Name]
		if declare == nil {
			return fmt.Errorf("nothing syncs %s", k.Name)
		}
		switch {
		case s.engine.Sync.On(k.Name), k.Name == resources.Nodes, k.Class && !k.Extension: // none of these may remain in the space
			if err := declare(); err != nil {
				return err
			}
		case hostcache.RemovedWhenOff(k):
			s.engine.RemoveStale(k.Name)
		}
	}
	return custom.Declare(s.engine, services, c.Declared)
}

// Run syncs until ctx ends, and returns when all of its work has stopped. It may be called once.
func (s *Syncer) Run(ctx context.Context) error {
	defer s.host.Use(s.engine.Space, s.account)()
	return s.engine.Run(ctx)
}

// Idle reports whether the syncer has no work: it has processed all changes on both sides, and the host's watches have
// returned its own writes. Retries that are due later don't count; see [Syncer.NextTimer].
func (s *Syncer) Idle() bool { return s.engine.Idle() }

// NextTimer returns when the syncer next has work of its own; ok is false if it has none. Such work is replacing tokens
// of running pods, releasing reservations, and retrying what failed because of the host. What the host or the space's
// rules rejected is not included: it is retried when the space wakes.
func (s *Syncer) NextTimer() (at time.Time, ok bool) { return s.engine.NextTimer() }

// Stats returns what the syncer has done.
func (s *Syncer) Stats() Stats { return s.engine.Stats() }
