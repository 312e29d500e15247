// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/metrics"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster/pki"
)

// startTimeout bounds the start of one space: one that cannot start must not
// keep the others waiting.
const startTimeout = 2 * time.Minute

// stopTimeout bounds a clean stop; what is not done by then is done as after a
// crash, at the next start.
const stopTimeout = 20 * time.Second

// platform is one run of spaces on a host, by `berth up` or `berth serve`. Its
// steps undo themselves in reverse order.
type platform struct {
	options runOptions
	logger  klog.Logger

	// In these the commands differ.
	say      func(format string, args ...any) // told of what is being done
	openHost func(ctx context.Context) error  // the step that sets host
	serves   func()                           // called once, when requests are served
	explain  func()                           // called once, when all spaces that were asked for have been tried
	// persevere has it run on if none of the spaces that were asked for starts.
	persevere bool
	// secrets are where kubeconfigs go too, if anywhere.
	secrets kubeconfigSecrets

	// commands are what the control socket serves; steps add theirs.
	commands *http.ServeMux

	ca          *pki.CA
	certificate *pki.Serving
	listener    net.Listener
	host        hostCluster
	// hostKubeconfig is by what a process of its own reaches the host; see hostConfig.
	hostKubeconfig string
	closed         []netip.Prefix // to spaces' pods, beside what always is
	settings       func(space string) translate.Settings
	shard          *shard.Shard
	prepare        func(ctx context.Context, space string) error // what a space stands on
	processes      map[string]*dedicated.Process                 // by space
	server         *gateway.Server
	metrics        *metrics.Metrics
	traces         tracing.TracerProvider // nil if there are none
	limiter        *gateway.Limiter       // of the requests that come in by either port
	serving        atomic.Bool            // between start and stop
	undo           []func(context.Context)

	first firstStarts
}

func (p *platform) run(ctx context.Context) (err error) {
	defer func() {
		if p.server != nil {
			p.say("Stopping ...")
		}
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		for _, undo := range slices.Backward(p.undo) {
			undo(stop)
		}
	}()
	p.metrics = p.newMetrics()
	p.first.done = make(chan struct{})
	for _, step := range []func(context.Context) error{
		p.lock, p.serveCommands, p.startTracing, p.listen, p.openHost, p.openSecrets, p.startShard, p.serve, p.servePods, p.serveOperations, p.startSpaces, p.startDedicated, p.beginFirstStarts, p.startSnapshots, p.startRenewing,
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
	p.serves()
	for tried := p.first.done; ; tried = nil {
		select {
		case <-ctx.Done():
			return nil
		case <-p.server.Done():
			return p.server.Err()
		case <-p.host.Done():
			return fmt.Errorf("host cluster ended: %w", p.host.Err())
		case <-tried:
			if p.first.failure != nil {
				return p.first.failure
			}
			p.explain()
		}
	}
}

func (p *platform) onStop(undo func(context.Context)) { p.undo = append(p.undo, undo) }

// lock makes the data directory ours until the process ends, however it ends.
func (p *platform) lock(context.Context) error {
	file, err := lockDataDir(p.options.dataDir)
	if err != nil {
		return err
	}
	p.onStop(func(context.Context) { _ = file.Close() })
	return nil
}

// lockDataDir makes a data directory ours until the file is closed.
func lockDataDir(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is in use by another berth; stop it or choose another --data-dir", dir)
		}
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	return file, nil
}

// serveCommands opens the socket by which other commands reach this one.
func (p *platform) serveCommands(context.Context) error {
	p.commands = http.NewServeMux()
	server, err := control.Serve(filepath.Join(p.options.dataDir, control.Name), p.commands, p.logger)
	if err != nil {
		return err
	}
	p.onStop(server.Stop)
	return nil
}

func (p *platform) listen(ctx context.Context) (err error) {
	if p.ca, err = pki.OpenCA(filepath.Join(p.options.dataDir, "pki"), "berth"); err != nil {
		return err
	}
	if p.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", p.options.listen); err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("--listen=%s: the port is in use; stop what uses it or choose another", p.options.listen)
		}
		return fmt.Errorf("--listen=%s: %w", p.options.listen, err)
	}
	p.onStop(func(context.Context) { _ = p.listener.Close() })
	return nil
}

// endpoint is the URL of a space's API, as its clients reach it.
func (p *platform) endpoint(space string) string {
	if p.options.advertise != "" {
		return p.options.advertise + gateway.Path(space)
	}
	return "https://" + net.JoinHostPort(p.address(), p.port()) + gateway.Path(space)
}

func (p *platform) port() string {
	_, port, _ := net.SplitHostPort(p.listener.Addr().String())
	return port
}

func (p *platform) address() string { return cmp.Or(p.options.listenHost(), "127.0.0.1") }

// names are those that the port's certificate is good for: the one that is
// advertised, and this machine's own, by which also a forwarded port is reached.
func (p *platform) names() []string {
	names := []string{p.address(), "127.0.0.1", "::1", "localhost"}
	if u, err := url.Parse(p.options.advertise); err == nil && u.Hostname() != "" {
		names = append(names, u.Hostname())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (p *platform) serve(context.Context) (err error) {
	if p.certificate, err = p.ca.Serving(p.names()...); err != nil {
		return err
	}
	limits, err := p.options.limits.options()
	if err != nil {
		return err
	}
	p.limiter = gateway.NewLimiter(limits.of)
	p.server = gateway.Serve(p.listener, p.certificate.Get, &gateway.Router{
		Lookup: p.lookup, Own: issuer, Verify: p.verify, Limiter: p.limiter, Meter: p.metrics, Traces: p.traces,
	}, p.logger)
	p.onStop(p.server.Stop)
	return nil
}

// issuer is for [gateway.Router.Own]: clients whose URL has no path, such as those
// of `kubectl proxy`, reach the space that issued their certificate (U2).
func issuer(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	return pki.SpaceOf(r.TLS.PeerCertificates[0])
}
