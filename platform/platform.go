// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/gateway/audit"
	"github.com/berth-dev/berth/gateway/authn"
	"github.com/berth-dev/berth/gateway/policy"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/metering"
	"github.com/berth-dev/berth/metrics"
	"github.com/berth-dev/berth/platform/certificate"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/manager"
	"github.com/berth-dev/berth/platform/peers"
	"github.com/berth-dev/berth/platform/systemroles"
	"github.com/berth-dev/berth/shard/credentials"
	"github.com/berth-dev/berth/vcluster/pki"
)

// stopTimeout limits a clean stop, for which the chart leaves 30 s. At most 18 s of it are for requests that don't end. What is not done by
// then is done at the next start, as after a crash.
const stopTimeout = 28 * time.Second

// Platform runs spaces on a host cluster. Its methods may be called concurrently once [Config.Serving] has been called.
type Platform struct {
	config Config
	logger klog.Logger

	// commands are the routes of the control socket. Each step adds its own.
	commands *http.ServeMux

	ca          *pki.CA
	certificate *pki.Serving
	files       *certificate.Files // nil if the certificate is always the platform's own
	clients     *authn.Authenticator
	listener    net.Listener
	host        hostCluster
	manager     *manager.Manager
	peers       *peers.Peers // nil on a platform without shards
	router      *gateway.Router
	pods        gateway.Pods // of requests of pods
	held        held
	server      *gateway.Server
	metrics     *metrics.Metrics
	recorder    *metering.Recorder
	traces      tracing.TracerProvider // nil if requests are not traced
	limiter     *gateway.Limiter       // limits the requests of clients and of pods
	auditor     *audit.Auditor         // records them
	policy      *policy.File           // of the admin; nil if there is none
	roles       atomic.Pointer[systemroles.Roles]
	granting    sync.Mutex    // held while what the platform grants is found out and handed on, so that the latest stays
	hostGrants  access.Source // what the platform grants in an embedded host
	serving     atomic.Bool   // between start and stop
	undo        []func(context.Context)
}

// New returns a platform. The configuration must be complete.
func New(c Config) *Platform { return &Platform{config: c, logger: c.Logger} }

// Run runs the platform until ctx ends, and then stops it within stopTimeout. It may be called once. Its steps are
// undone in reverse order.
func (p *Platform) Run(ctx context.Context) (err error) {
	defer func() {
		if p.server != nil {
			p.config.Progress("Stopping ...")
		}
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		for _, undo := range slices.Backward(p.undo) {
			undo(stop)
		}
	}()
	if err := p.config.Emulate(); err != nil {
		return err
	}
	p.metrics = p.newMetrics()
	for _, step := range []func(context.Context) error{
		p.lock, p.serveCommands, p.startTracing, p.readClients, p.joinShards, p.listen, p.readPolicy, p.startAudit, p.openHost, p.openSpaces, p.followGrants, p.startMetering, p.route, p.serveShards, p.serve, p.servePods, p.serveOperations, p.startSpaces, p.startOperator,
	} {
		if err := step(ctx); err != nil {
			if ctx.Err() != nil {
				return nil // interrupted while starting
			}
			return err
		}
	}
	p.serving.Store(true)
	defer p.serving.Store(false)
	if p.config.Serving != nil {
		p.config.Serving(p)
	}
	for tried := p.manager.Started(); ; tried = nil {
		select {
		case <-ctx.Done():
			p.drainShard()
			return nil
		case <-p.server.Done():
			return p.server.Err()
		case <-p.replaced():
			return p.peers.Err()
		case <-p.host.Done():
			return fmt.Errorf("host cluster ended: %w", p.host.Err())
		case <-tried:
			if err := p.manager.StartError(); err != nil {
				return err
			}
			if p.config.Started != nil {
				p.config.Started(p)
			}
		}
	}
}

func (p *Platform) onStop(undo func(context.Context)) { p.undo = append(p.undo, undo) }

// lock locks the data directory until the process ends, cleanly or not.
func (p *Platform) lock(context.Context) error {
	file, err := datadir.Lock(p.config.DataDir)
	if err != nil {
		return err
	}
	p.onStop(func(context.Context) { _ = file.Close() })
	return nil
}

// serveCommands opens the control socket, by which other commands reach this process.
func (p *Platform) serveCommands(context.Context) error {
	p.commands = http.NewServeMux()
	server, err := control.Serve(filepath.Join(p.config.DataDir, control.Name), p.commands, p.logger)
	if err != nil {
		return err
	}
	p.onStop(server.Stop)
	return nil
}

func (p *Platform) listen(ctx context.Context) (err error) {
	if p.ca, err = p.peers.OpenCA(ctx, peers.EndpointSecret, datadir.PortKeys(p.config.DataDir), datadir.PortCA); err != nil {
		return err
	}
	if p.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", p.config.Listen); err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			return fielderror.New("listen", p.config.Listen, "the port is in use; stop what uses it or choose another")
		}
		return fielderror.New("listen", p.config.Listen, "%w", err)
	}
	p.onStop(func(context.Context) { _ = p.listener.Close() })
	if p.certificate, err = p.ca.Serving(p.names()...); err != nil {
		return err
	}
	return p.openFiles()
}

// Endpoint returns the URL of a space's API as its clients reach it.
func (p *Platform) Endpoint(space string) string {
	if p.config.Advertise != "" {
		return p.config.Advertise + gateway.Path(space)
	}
	return "https://" + net.JoinHostPort(p.address(), p.port()) + gateway.Path(space)
}

func (p *Platform) port() string {
	_, port, _ := net.SplitHostPort(p.listener.Addr().String())
	return port
}

func (p *Platform) address() string {
	if p.config.ListensEverywhere() {
		return Loopback
	}
	host, _, _ := net.SplitHostPort(p.config.Listen)
	return host
}

// names returns the names in the serving certificate: the advertised one, and those of this machine, which clients of a
// forwarded port use.
func (p *Platform) names() []string {
	names := []string{p.address(), Loopback, "::1", "localhost"}
	if u, err := url.Parse(p.config.Advertise); err == nil && u.Hostname() != "" {
		names = append(names, u.Hostname())
	}
	if p.config.Domain != "" {
		names = append(names, "*."+p.config.Domain)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// openSpaces makes the manager give all spaces their places.
func (p *Platform) openSpaces(ctx context.Context) error {
	p.manager = manager.New(p.config.Options, manager.Environment{
		Host: p.host.Config(), HostAddress: p.hostAddress, Peers: p.peers,
		CA: p.ca, Endpoint: p.Endpoint, KeepServerCA: p.keepServerCA, Commands: p.commands, Metrics: p.metrics, Traces: p.traces,
	})
	p.onStop(p.manager.Close)
	return p.manager.Open(ctx)
}

// startSpaces makes the manager begin its work.
func (p *Platform) startSpaces(ctx context.Context) error {
	p.onStop(p.manager.Stop)
	return p.manager.Start(ctx)
}

// Manager returns the manager of the spaces.
func (p *Platform) Manager() *manager.Manager { return p.manager }

// lookup returns the handler of the API of a space, or of the host.
func (p *Platform) lookup(space string) http.Handler {
	if space == gateway.SystemSpace {
		return p.host.Handler()
	}
	return p.manager.Handler(space)
}

// tenantOf implements [gateway.Router.TenantOf].
func (p *Platform) tenantOf(space string) string {
	if space == gateway.SystemSpace {
		return v1alpha1.SystemTenant
	}
	return p.manager.TenantOf(space)
}

// verify implements [gateway.Router.Verify]. Requests to an embedded host are not verified here: its only users are
// admins, and its API server authenticates them. No credential that is verified here leads to another host.
func (p *Platform) verify(space string, r *http.Request) (*http.Request, bool, error) {
	if space == gateway.SystemSpace {
		return r, p.config.Host.Embedded, nil
	}
	return p.manager.Verify(space, r)
}

// route makes the handler of all requests.
func (p *Platform) route(context.Context) error {
	p.limiter = gateway.NewLimiter(gateway.LimiterConfig{
		Limits: p.config.Specs.Limits, TenantOf: p.tenantOf, TenantLimits: p.config.Specs.TenantLimits,
	})
	p.router = &gateway.Router{
		Lookup: p.lookup, Elsewhere: p.elsewhere, TenantOf: p.tenantOf, GivesAccess: p.givesAccess, Identify: p.clients.Identify, Domain: p.config.Domain, Own: issuer, DefaultTenant: p.config.Clients.DefaultTenant, Verify: p.verify, Limiter: p.limiter, UserOf: credentials.ClientOf, Audit: p.auditor.Audited, Meter: p.meter(), Traces: p.traces,
	}
	p.routePods()
	return nil
}

func (p *Platform) serve(context.Context) error {
	p.server = gateway.Serve(p.listener, p.serverCertificate, p.router, p.logger)
	if p.peers != nil {
		p.server.Waiting = p.peers.Waiting
	}
	p.onStop(p.server.Stop)
	return nil
}

// issuer implements [gateway.Router.Own]. Clients whose URL has no path, such as `kubectl proxy`, reach the space that
// issued their certificate or token (U2).
func issuer(r *http.Request) string {
	space := credentials.SpaceOf(r)
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		space = pki.SpaceOf(r.TLS.PeerCertificates[0])
	}
	if space == datadir.HostName { // an embedded host issues credentials under this name, and no space has it
		return gateway.SystemSpace
	}
	return space
}

// readClients reads the files of [Config.Clients], and follows their changes.
func (p *Platform) readClients(ctx context.Context) (err error) {
	hasTenant := func(tenant string) bool { return p.manager.HasTenant(tenant) }
	if p.clients, err = authn.New(p.config.Clients, hasTenant, p.logger); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	safego.Go(&group, "follow the CAs of clients", func() { p.clients.Run(ctx) }, nil)
	p.onStop(func(context.Context) {
		cancel()
		group.Wait()
	})
	return nil
}

func (p *Platform) startTracing(ctx context.Context) error {
	traces, stop, err := p.config.Traces.Start(ctx, p.config.Version.Berth, p.logger)
	if err != nil {
		return err
	}
	p.traces = traces
	p.onStop(stop)
	return nil
}
