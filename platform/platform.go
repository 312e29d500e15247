// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/metrics"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/credentials"
	"github.com/berth-dev/berth/vcluster/pki"
)

// startTimeout bounds the start of one space: one that cannot start must not
// keep the others waiting.
const startTimeout = 2 * time.Minute

// stopTimeout bounds a clean stop; what is not done by then is done as after a
// crash, at the next start.
const stopTimeout = 20 * time.Second

// Platform runs spaces on a host cluster. Its methods may be called concurrently once [Config.Serving] has been called.
type Platform struct {
	config Config
	logger klog.Logger

	// commands are what the control socket serves; steps add theirs.
	commands *http.ServeMux
	secrets  kubeconfigSecrets
	clusters kubeconfigSecrets // for Argo CD

	ca          *pki.CA
	certificate *pki.Serving
	listener    net.Listener
	host        hostCluster
	hostClient  client.Client
	// hostKubeconfig is by what the process of a dedicated space reaches the host: that which it is a pod of if empty.
	hostKubeconfig string
	closed         []netip.Prefix // to spaces' pods
	shard          *shard.Shard
	prepare        func(ctx context.Context, space string) error // isolates a space on the host
	// isolationOptions are those of all spaces.
	isolationOptions []isolation.Option
	repairs          *repairs
	processes        processes
	snapshots        *snapshots
	changes          changes
	deletions        deletions
	server           *gateway.Server
	metrics          *metrics.Metrics
	traces           tracing.TracerProvider // nil if there are none
	limiter          *gateway.Limiter       // of the requests of clients and of pods
	serving          atomic.Bool            // between start and stop
	undo             []func(context.Context)

	starts  firstStarts
	objects *spaceObjects
	applied appliedSpecs
	quotas  sync.Map // of the spaces, by name, of which a quota on the host has changed
	// unapplied are spaces of the configuration, by name, whose objects could not be applied yet: each a *v1alpha1.Space.
	unapplied sync.Map
	foreign   seenObjects
}

// New returns a platform with a configuration that is complete.
func New(c Config) *Platform { return &Platform{config: c, logger: c.Logger} }

// Run runs the platform until ctx ends, and then stops it cleanly, within stopTimeout. It may be called once. Its steps
// undo themselves in reverse order.
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
	p.metrics = p.newMetrics()
	for _, step := range []func(context.Context) error{
		p.lock, p.serveCommands, p.startTracing, p.listen, p.openHost, p.openSecrets, p.openClusters, p.startShard, p.openSpaces, p.serve, p.servePods, p.serveOperations, p.startSnapshots, p.watchIsolation, p.startReconciling, p.beginFirstStarts, p.startRenewing,
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
	for tried := p.starts.done; ; tried = nil {
		select {
		case <-ctx.Done():
			return nil
		case <-p.server.Done():
			return p.server.Err()
		case <-p.host.Done():
			return fmt.Errorf("host cluster ended: %w", p.host.Err())
		case <-tried:
			if p.starts.err != nil {
				return p.starts.err
			}
			if p.config.Started != nil {
				p.config.Started(p)
			}
		}
	}
}

func (p *Platform) onStop(undo func(context.Context)) { p.undo = append(p.undo, undo) }

// lock makes the data directory ours until the process ends, however it ends.
func (p *Platform) lock(context.Context) error {
	file, err := lockDataDir(p.config.DataDir)
	if err != nil {
		return err
	}
	p.onStop(func(context.Context) { _ = file.Close() })
	return nil
}

// serveCommands opens the socket by which other commands reach this one.
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
	if p.ca, err = pki.OpenCA(portKeys(p.config.DataDir), portCA); err != nil {
		return err
	}
	if p.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", p.config.Listen); err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			return fieldError("listen", p.config.Listen, "the port is in use; stop what uses it or choose another")
		}
		return fieldError("listen", p.config.Listen, "%w", err)
	}
	p.onStop(func(context.Context) { _ = p.listener.Close() })
	return nil
}

// Endpoint is the URL of a space's API, as its clients reach it.
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

// names are those that the port's certificate is good for: the one that is
// advertised, and this machine's own, by which also a forwarded port is reached.
func (p *Platform) names() []string {
	names := []string{p.address(), Loopback, "::1", "localhost"}
	if u, err := url.Parse(p.config.Advertise); err == nil && u.Hostname() != "" {
		names = append(names, u.Hostname())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (p *Platform) serve(context.Context) (err error) {
	if p.certificate, err = p.ca.Serving(p.names()...); err != nil {
		return err
	}
	p.limiter = gateway.NewLimiter(p.config.specs.limits)
	p.server = gateway.Serve(p.listener, p.certificate.Get, &gateway.Router{
		Lookup: p.lookup, Own: issuer, Verify: p.verify, Limiter: p.limiter, Meter: p.metrics, Traces: p.traces,
	}, p.logger)
	p.onStop(p.server.Stop)
	return nil
}

// issuer is for [gateway.Router.Own]: clients whose URL has no path, such as those
// of `kubectl proxy`, reach the space that issued their certificate or token (U2).
func issuer(r *http.Request) string {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return pki.SpaceOf(r.TLS.PeerCertificates[0])
	}
	return credentials.SpaceOf(r)
}
