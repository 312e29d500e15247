// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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
	"github.com/berth-dev/berth/vcluster/pki"
)

// startTimeout bounds the start of one space: one that cannot start must not
// keep the others waiting.
const startTimeout = 2 * time.Minute

// stopTimeout bounds a clean stop; what is not done by then is done as after a
// crash, at the next start.
const stopTimeout = 20 * time.Second

// up is one run of `berth up`. Its steps undo themselves in reverse order.
type up struct {
	options  upOptions
	out      io.Writer // what to do next
	progress io.Writer // what is being done
	logger   klog.Logger
	started  time.Time

	// commands are what the control socket serves; steps add theirs.
	commands *http.ServeMux

	ca          *pki.CA
	certificate *pki.Serving
	listener    net.Listener
	host        hostCluster
	shard       *shard.Shard
	prepare     func(ctx context.Context, space string) error // what a space stands on
	processes   map[string]*dedicated.Process                 // by space
	server      *gateway.Server
	metrics     *metrics.Metrics
	traces      tracing.TracerProvider // nil if there are none
	serving     atomic.Bool            // between start and stop
	undo        []func(context.Context)
}

func (u *up) run(ctx context.Context) (err error) {
	defer func() {
		if u.server != nil {
			fmt.Fprintln(u.progress, "Stopping ...")
		}
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		for _, undo := range slices.Backward(u.undo) {
			undo(stop)
		}
	}()
	u.metrics = u.newMetrics()
	for _, step := range []func(context.Context) error{
		u.lock, u.serveCommands, u.startTracing, u.listen, u.startHost, u.startShard, u.serve, u.serveOperations, u.startSpaces, u.startDedicated, u.startSnapshots, u.startRenewing,
	} {
		if err := step(ctx); err != nil {
			if ctx.Err() != nil {
				return nil // interrupted while starting
			}
			return err
		}
	}
	u.serving.Store(true)
	defer u.serving.Store(false)
	u.explain()
	select {
	case <-ctx.Done():
		return nil
	case <-u.server.Done():
		return u.server.Err()
	case <-u.host.Done():
		return fmt.Errorf("host cluster ended: %w", u.host.Err())
	}
}

func (u *up) say(format string, args ...any) {
	fmt.Fprintf(u.progress, "[%5.1fs] %s\n", time.Since(u.started).Seconds(), fmt.Sprintf(format, args...))
}

func (u *up) onStop(undo func(context.Context)) { u.undo = append(u.undo, undo) }

// lock makes the data directory ours until the process ends, however it ends.
func (u *up) lock(context.Context) error {
	file, err := lockDataDir(u.options.dataDir)
	if err != nil {
		return err
	}
	u.onStop(func(context.Context) { _ = file.Close() })
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
func (u *up) serveCommands(context.Context) error {
	u.commands = http.NewServeMux()
	server, err := control.Serve(filepath.Join(u.options.dataDir, control.Name), u.commands, u.logger)
	if err != nil {
		return err
	}
	u.onStop(server.Stop)
	return nil
}

func (u *up) listen(ctx context.Context) (err error) {
	if u.ca, err = pki.OpenCA(filepath.Join(u.options.dataDir, "pki"), "berth"); err != nil {
		return err
	}
	if u.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", u.options.listen); err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("--listen=%s: the port is in use; stop what uses it or choose another", u.options.listen)
		}
		return fmt.Errorf("--listen=%s: %w", u.options.listen, err)
	}
	u.onStop(func(context.Context) { _ = u.listener.Close() })
	return nil
}

// endpoint is the URL of a space's API, as clients on this machine reach it.
func (u *up) endpoint(space string) string {
	return "https://" + net.JoinHostPort(u.address(), u.port()) + gateway.Path(space)
}

func (u *up) port() string {
	_, port, _ := net.SplitHostPort(u.listener.Addr().String())
	return port
}

func (u *up) address() string {
	host, _, err := net.SplitHostPort(u.options.listen)
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		return "127.0.0.1"
	}
	return host
}

func (u *up) serve(context.Context) (err error) {
	if u.certificate, err = u.ca.Serving(slices.Compact([]string{u.address(), "127.0.0.1", "::1", "localhost"})...); err != nil {
		return err
	}
	u.server = gateway.Serve(u.listener, u.certificate.Get, &gateway.Router{Lookup: u.lookup, Meter: u.metrics, Traces: u.traces}, u.logger)
	u.onStop(u.server.Stop)
	return nil
}

func (u *up) explain() {
	dir, names := u.options.dataDir, slices.Concat(u.options.spaces, u.options.dedicated)
	for _, name := range names {
		fmt.Fprintf(u.out, "\nSpace %s serves at %s", name, u.endpoint(name))
	}
	fmt.Fprintf(u.out, `

  export KUBECONFIG=%s
  kubectl create deployment web --image=nginx --replicas=3
  kubectl get pods -o wide
`, kubeconfigPath(dir, names[0]))
	if u.host.Handler() != nil {
		fmt.Fprintf(u.out, `
and, as the platform's admin, see the same pods on the host:

  kubectl --kubeconfig %s get pods -A
`, kubeconfigPath(dir, "host"))
	}
	fmt.Fprintf(u.out, "\nLog: %s. Stop with Ctrl-C; start again to go on.\n", filepath.Join(dir, logFile))
}
