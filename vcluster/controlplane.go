// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/vcluster/bootstrap"
	"github.com/berth-dev/berth/vcluster/controllers"
	"github.com/berth-dev/berth/vcluster/credentials"
	"github.com/berth-dev/berth/vcluster/gate"
	"github.com/berth-dev/berth/vcluster/loopback"
	"github.com/berth-dev/berth/vcluster/pki"
	"github.com/berth-dev/berth/vcluster/process"
	"github.com/berth-dev/berth/vcluster/storage"
)

// readyPoll is how often a starting API server is asked whether it is ready.
const readyPoll = 20 * time.Millisecond

// ControlPlane is a running control plane. Its methods may be called
// concurrently.
type ControlPlane struct {
	config      Config
	credentials credentials.Set
	client      *rest.Config
	gate        *gate.Gate

	// stopping ends what Berth itself runs in the background.
	stopping   context.Context
	stop       context.CancelFunc
	background sync.WaitGroup

	// Of these, the ones that were started are not nil.
	store       *storage.Store
	chain       *chain
	hooks       *hooks
	run         *serverRun
	controllers *controllers.Running

	stopOnce sync.Once
	done     chan struct{}
	err      error // of a control plane that ended by itself
	stopErr  error
}

// Start starts a control plane and returns when its /readyz is ok and its
// controllers run. ctx bounds the starting only. On error everything that was
// started has been stopped.
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
	store, err := kine.Open(ctx, kine.Options{
		Path: filepath.Join(p.config.Dir, "store.db"), Name: p.config.Name, MaxBytes: p.config.StoreBytes,
		Account: p.config.Account, Volume: p.config.Volume,
	})
	if err != nil {
		return err
	}
	p.store = storage.New(store, p.config.Account)
	if err := ctx.Err(); err != nil {
		return err
	}

	p.client = loopback.Config(&loopback.Transport{Gate: p.gate}, rand.Text())
	o, err := newOptions(ctx, p.config, p.credentials, p.store)
	if err != nil {
		return err
	}
	objects := bootstrap.New(p.config.Logger)
	p.hooks = newHooks(p.stopping, objects)
	if p.chain, err = newChain(p.stopping, p.config, p.credentials, o, p.client, p.store, p.gate, p.hooks); err != nil {
		return err
	}
	p.gate.Open(credentials.ServeIssuer(p.config.Name, p.chain.handler()))
	// Even if ctx has ended: work queues that are made with the server end only
	// with a server that ran.
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
	// Again: it is about informers, too, and controllers add theirs.
	return p.waitReady(ctx)
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
			return false, nil // Not ready; the poll ends with ctx.
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
	if err != nil {
		return fmt.Errorf("wait until it is ready: %w", err)
	}
	return nil
}

// Handler serves the whole API: authentication by client certificates of the
// space's CA and by service-account tokens, RBAC, admission. A client
// certificate is taken from the request's TLS state and verified here, so a
// listener need only request one.
func (p *ControlPlane) Handler() http.Handler { return p.gate }

// Loopback returns a client configuration with all rights that calls the API
// in process.
func (p *ControlPlane) Loopback() *rest.Config { return rest.CopyConfig(p.client) }

// Informers returns the informers that the API server and its controllers
// share. Callers may ask for further ones and then call Start; all live as long
// as the control plane, whatever channel they are started with. Their objects
// lack managed fields and must not be changed.
func (p *ControlPlane) Informers() informers.SharedInformerFactory { return p.chain.informers }

// ClientKubeconfig issues a client certificate for user in groups and returns
// a kubeconfig that embeds it.
func (p *ControlPlane) ClientKubeconfig(user string, groups []string) ([]byte, error) {
	pair, err := p.credentials.CA.Client(user, groups)
	if err != nil {
		return nil, err
	}
	return pki.Kubeconfig(p.config.Name, p.config.Endpoint, p.config.ServingCA, user, pair)
}

// TokenKeyID is the ID of the key that signs service-account tokens, as in the header of a token.
func (p *ControlPlane) TokenKeyID() string { return p.credentials.TokenKeys.SignerID() }

// Snapshot writes a copy of the store, as it is at one moment, to path, where
// nothing is.
func (p *ControlPlane) Snapshot(ctx context.Context, path string) error {
	return p.store.Kine.Snapshot(ctx, path)
}

// StoreStats are figures of the control plane's store.
func (p *ControlPlane) StoreStats(ctx context.Context) (kine.Stats, error) {
	return p.store.Kine.Stats(ctx)
}

// Done is closed when the control plane has ended, by Stop or by itself.
func (p *ControlPlane) Done() <-chan struct{} { return p.done }

// Err tells, once Done is closed, why the control plane ended by itself. It is
// nil after Stop.
func (p *ControlPlane) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// RunningControllers returns the names of the controllers that run now. Those
// for which there is no work do not.
func (p *ControlPlane) RunningControllers() []string {
	if p.controllers == nil {
		return nil
	}
	return p.controllers.Names()
}
