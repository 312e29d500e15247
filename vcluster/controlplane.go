// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/vcluster/bootstrap"
	"github.com/berth-dev/berth/vcluster/controllers"
	"github.com/berth-dev/berth/vcluster/credentials"
	"github.com/berth-dev/berth/vcluster/gate"
	"github.com/berth-dev/berth/vcluster/loopback"
	"github.com/berth-dev/berth/vcluster/overlay"
	"github.com/berth-dev/berth/vcluster/pki"
	"github.com/berth-dev/berth/vcluster/process"
	"github.com/berth-dev/berth/vcluster/storage"
	"github.com/berth-dev/berth/vcluster/tenancy"
	"github.com/berth-dev/berth/vcluster/tenancy/keeper"
	"github.com/berth-dev/berth/vcluster/usage"
)

// readyPoll is the interval at which a starting API server is checked.
const readyPoll = 20 * time.Millisecond

// keptTimeout limits how long a start waits for the objects that Berth keeps for the space's tenant.
const keptTimeout = 3 * time.Second

// ControlPlane is a running control plane. It is safe for concurrent use.
type ControlPlane struct {
	config      Config
	credentials credentials.Set
	client      *rest.Config
	gate        *gate.Gate
	tenant      *tenancy.Tenancy

	// stopping is canceled to end Berth's own background work.
	stopping   context.Context
	stop       context.CancelFunc
	background sync.WaitGroup

	// Those of the following that were started are not nil.
	store       *storage.Store
	chain       *chain
	hooks       *hooks
	run         *serverRun
	controllers *controllers.Running
	kept        <-chan struct{} // closed when the objects of the tenant are there

	stopOnce sync.Once
	done     chan struct{}
	err      error // why the control plane ended by itself
	stopErr  error
}

// Start starts a control plane, and returns when its /readyz is ok and its controllers run. ctx limits only the start.
// On error, everything that was started has been stopped.
func Start(ctx context.Context, c Config) (*ControlPlane, error) {
	c, err := c.complete()
	if err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	if err := process.Prepare(); err != nil {
		return nil, fmt.Errorf("start control plane %s: %w", c.Name, err)
	}
	p := &ControlPlane{config: c, gate: gate.New(), done: make(chan struct{})}
	p.stopping, p.stop = context.WithCancel(klog.NewContext(context.Background(), c.Logger))
	if err := p.start(ctx); err != nil {
		p.shutdown()
		<-p.done
		if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return nil, fmt.Errorf("start control plane %s: %w", c.Name, err)
	}
	return p, nil
}

func (p *ControlPlane) start(ctx context.Context) (err error) {
	if p.credentials, err = credentials.Open(p.config.Dir, p.config.Name, p.config.ServingCA, p.config.Clock); err != nil {
		return err
	}
	store, err := p.openStore(ctx)
	if err != nil {
		return err
	}
	p.store = storage.New(store, p.config.Account)
	p.store.Tenant = p.config.Access
	if p.config.Quota != nil {
		p.store.Quota = &storage.Quota{Gate: p.config.Quota, Usage: usage.New(p.config.HostLimits, clock.RealClock{})}
	}
	if p.config.Definitions != nil {
		p.store.Shared = overlay.New(p.config.Definitions, p.store.Client, p.config.Account)
		if err := p.store.Shared.Load(ctx); err != nil {
			return err
		}
		safego.Go(&p.background, "follow shared definitions", func() { p.store.Shared.Run(p.stopping) }, p.fail)
	}
	p.tenant = tenancy.New(p.config.Access, p.config.Granted, p.config.Definitions, p.config.AfterRBAC)
	if err := ctx.Err(); err != nil {
		return err
	}

	p.client = loopback.Config(&loopback.Transport{Gate: p.gate}, rand.Text())
	c := p.config
	if c.Access != nil {
		c.Admission = append([]Admission{{Name: tenancy.PluginName, New: p.tenant.Plugin}}, c.Admission...)
	}
	o, err := newOptions(ctx, c, p.credentials, p.store)
	if err != nil {
		return err
	}
	objects := bootstrap.New(p.config.Logger)
	p.hooks = newHooks(p.stopping, objects)
	if p.chain, err = newChain(p.stopping, p.config, p.credentials, o, p.client, p.store, p.gate, p.hooks, p.tenant); err != nil {
		return err
	}
	if p.store.Quota != nil {
		if err := p.followUsage(p.store.Quota, p.chain.informers); err != nil {
			return err
		}
	}
	p.gate.Open(credentials.ServeIssuer(p.config.Name, p.chain.handler()))
	// This must run even if ctx has ended: the work queues that are created with the server end only with a server that
	// ran.
	p.run = runServer(p.chain.server)
	client, err := kubernetes.NewForConfig(p.client)
	if err != nil {
		return fmt.Errorf("make client for bootstrap objects: %w", err)
	}
	admins := bootstrap.NewAdminAccess(client.RbacV1(), p.chain.informers.Rbac().V1(), p.config.Logger)
	if err := admins.Watch(); err != nil {
		return err
	}
	safego.Go(&p.background, "write bootstrap objects", func() { objects.Run(p.stopping, client, admins) }, p.fail)
	safego.Go(&p.background, "keep the rights of admins", func() { admins.Run(p.stopping) }, p.fail)
	if err := p.waitReady(ctx); err != nil {
		return err
	}
	if err := p.followCRDPolicy(); err != nil {
		return err
	}
	if err := p.followTenant(); err != nil {
		return err
	}
	safego.Go(&p.background, "establish definitions", func() {
		if err := p.establish(p.stopping); err != nil && p.stopping.Err() == nil {
			p.config.Logger.Error(err, "Could not establish all definitions that an earlier run has begun with; they are served after some minutes")
		}
	}, p.fail)
	if err := p.chain.aggregated.Load(p.chain.aggregation); err != nil {
		return fmt.Errorf("load API services: %w", err)
	}
	safego.Go(&p.background, "follow API services", func() { p.chain.aggregated.Run(p.stopping, p.chain.aggregation) }, p.fail)
	if p.controllers, err = controllers.Start(ctx, controllers.Config{
		Names: p.config.Controllers, Quiet: p.config.ControllersQuiet, HiddenNodes: p.config.HiddenNodes, ServingCA: p.config.ServingCA,
		Credentials: p.credentials, Loopback: p.client, Store: p.store.Client.Client, Informers: p.chain.informers.pool,
		Aggregated: p.chain.aggregated.Has, Account: p.config.Account, Logger: p.config.Logger,
	}); err != nil {
		return err
	}
	p.watchServer()
	// Check again, because it includes the informers that controllers have added.
	if err := p.waitReady(ctx); err != nil {
		return err
	}
	return p.waitKept(ctx)
}

// followCRDPolicy has the definitions that the platform shares follow the policy of the tenant.
func (p *ControlPlane) followCRDPolicy() error {
	if p.store.Shared == nil {
		return nil
	}
	feed := p.chain.informers.pool.Feed()
	feed.Observe(p.store.Shared)
	if err := feed.WaitReady(p.stopping); err != nil {
		return fmt.Errorf("follow the CRDPolicy: %w", err)
	}
	p.store.Shared.Lost() // it may have changed since it was read
	return nil
}

// followTenant enforces what changes, if there may be a tenant.
func (p *ControlPlane) followTenant() error {
	if p.tenant.Grants() == nil {
		return nil
	}
	safego.Go(&p.background, "end requests of visitors who lost their rights", func() { p.tenant.RunVisitors(p.stopping) }, p.fail)
	safego.Go(&p.background, "end requests of others who lost their rights", func() { p.tenant.RunOthers(p.stopping) }, p.fail)
	if p.config.Access == nil {
		return nil
	}
	if err := p.tenant.FollowTenantAccesses(p.stopping, p.store.Client.Client, p.chain.informers.pool.Feed()); err != nil {
		return err
	}
	safego.Go(&p.background, "follow TenantAccess objects", func() { p.tenant.RunTenantAccesses(p.stopping) }, p.fail)
	kept, err := keeper.New(keeper.Config{
		Source: p.config.Access, Loopback: p.client, Informers: p.chain.informers, Demoted: p.tenant.CheckSessions, Shared: p.config.Definitions, Account: p.config.Account, Logger: p.config.Logger,
	})
	if err != nil {
		return err
	}
	safego.Go(&p.background, "keep the objects of the tenant", func() { kept.Run(p.stopping) }, p.fail)
	p.kept = kept.First()
	return nil
}

// waitKept returns when what the tenant enforces by objects is there, so that no request comes before a policy that was published
// while the space slept. It doesn't wait for long: the space's other users must not suffer from an object that can't be kept.
func (p *ControlPlane) waitKept(ctx context.Context) error {
	if p.kept == nil {
		return nil
	}
	limit := time.NewTimer(keptTimeout)
	defer limit.Stop()
	select {
	case <-p.kept:
	case <-limit.C:
		p.config.Logger.Info("Serves before all objects of the tenant are kept; Berth continues to keep them", "after", keptTimeout)
	case <-ctx.Done():
		return fmt.Errorf("wait until the objects of the tenant are kept: %w", ctx.Err())
	}
	return nil
}

// waitReady returns when /readyz is ok.
func (p *ControlPlane) waitReady(ctx context.Context) error {
	client, err := rest.HTTPClientFor(p.client)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextCancel(ctx, readyPoll, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.run.done:
			return false, fmt.Errorf("the API server ended: %w", p.run.err)
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, loopback.Host+"/readyz", nil)
		if err != nil {
			return false, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return false, nil // not ready; the poll ends with ctx
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
	if err != nil {
		return fmt.Errorf("wait until it is ready: %w", err)
	}
	return nil
}

// Handler returns the handler of the whole API: authentication by client certificates of the space's CA and by
// service-account tokens, RBAC, and admission. Client certificates are read from the request's TLS state and verified
// here, so a listener need only request them.
func (p *ControlPlane) Handler() http.Handler { return p.gate }

// Loopback returns a configuration for clients in this process, with all rights.
func (p *ControlPlane) Loopback() *rest.Config { return rest.CopyConfig(p.client) }

// Informers returns the informers that the API server and its controllers share. Callers may request further ones and
// then call Start. All run as long as the control plane, whatever channel they are started with. Their objects have no
// managed fields, and must not be changed.
func (p *ControlPlane) Informers() informers.SharedInformerFactory { return p.chain.informers }

// ClientKubeconfig issues a client certificate for a user with groups, and returns a kubeconfig with it.
func (p *ControlPlane) ClientKubeconfig(user string, groups []string) ([]byte, error) {
	pair, err := p.credentials.CA.Client(user, groups)
	if err != nil {
		return nil, err
	}
	return pki.Kubeconfig(p.config.Name, p.config.Endpoint, p.config.ServingCA, user, pair)
}

// Hides reports whether the space has this object stored, and nobody deletes it, although its API may not show it: another
// CustomResourceDefinition of its kind may be in force.
func (p *ControlPlane) Hides(ctx context.Context, group, namespace, name string, uid types.UID) (bool, error) {
	if p.store.Shared == nil {
		return false, nil
	}
	return p.store.Shared.Hides(ctx, group, namespace, name, uid)
}

// TokenKeyID returns the ID of the key that signs service-account tokens, as in the header of a token.
func (p *ControlPlane) TokenKeyID() string { return p.credentials.TokenKeys.SignerID() }

// Snapshot writes a consistent copy of the store to path, where no file may exist.
func (p *ControlPlane) Snapshot(ctx context.Context, path string) error {
	return p.store.Kine.Snapshot(ctx, path)
}

// StoreStats returns statistics of the control plane's store.
func (p *ControlPlane) StoreStats(ctx context.Context) (kine.Stats, error) {
	return p.store.Kine.Stats(ctx)
}

// Done returns a channel that is closed when the control plane has ended, by Stop or by itself.
func (p *ControlPlane) Done() <-chan struct{} { return p.done }

// Err returns, once Done is closed, why the control plane ended by itself. It is nil after Stop.
func (p *ControlPlane) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// RunningControllers returns the names of the controllers that run now. Controllers without work don't run.
func (p *ControlPlane) RunningControllers() []string {
	if p.controllers == nil {
		return nil
	}
	return p.controllers.Names()
}
