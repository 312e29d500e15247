// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/internal/fielderror"
)

// healthTimeout limits how long a health check waits for the host.
const healthTimeout = 5 * time.Second

// serveOperations serves the process's health and metrics on the control socket, and on the port of MetricsListen if
// that is set. Tenants reach neither.
func (p *Platform) serveOperations(ctx context.Context) error {
	live, ready, err := p.healthChecks()
	if err != nil {
		return err
	}
	muxes := []*http.ServeMux{p.commands}
	if p.config.MetricsListen != "" {
		mux := http.NewServeMux()
		if err := p.listenOperations(ctx, mux); err != nil {
			return err
		}
		muxes = append(muxes, mux)
	}
	for _, mux := range muxes {
		mux.Handle("GET /metrics", p.metrics.Handler())
		healthz.InstallLivezHandler(mux, live...)
		healthz.InstallReadyzHandler(mux, ready...)
	}
	return nil
}

func (p *Platform) listenOperations(ctx context.Context, handler http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.config.MetricsListen)
	if errors.Is(err, unix.EADDRINUSE) {
		return fielderror.New("metrics-listen", p.config.MetricsListen, "the port is in use; stop what uses it or choose another")
	}
	if err != nil {
		return fielderror.New("metrics-listen", p.config.MetricsListen, "%w", err)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: healthTimeout, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(p.logger), slog.LevelDebug),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			p.logger.Error(err, "Stopped serving metrics", "address", listener.Addr())
		}
	}()
	p.onStop(func(context.Context) {
		_ = server.Close() // no request is worth waiting for
		<-done
	})
	p.config.Progress("Metrics and health are at http://%s/metrics, /livez and /readyz", listener.Addr())
	return nil
}

// healthChecks returns the checks that say whether the process should be restarted (live), and whether it should get
// requests (ready). A failing space is not among them; its conditions report it.
func (p *Platform) healthChecks() (live, ready []healthz.HealthChecker, err error) {
	config := rest.CopyConfig(p.host.Config())
	config.Timeout = healthTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make host client: %w", err)
	}
	ended := func(what string, done <-chan struct{}) healthz.HealthChecker {
		return healthz.NamedCheck(what, func(*http.Request) error {
			select {
			case <-done:
				return errors.New("it has ended")
			default:
				return nil
			}
		})
	}
	live = []healthz.HealthChecker{healthz.PingHealthz, ended("gateway", p.server.Done())}
	ready = append(live,
		healthz.NamedCheck("started", func(*http.Request) error {
			if !p.serving.Load() {
				return errors.New("berth is starting or stopping")
			}
			return nil
		}),
		healthz.NamedCheck("host", func(r *http.Request) error {
			return client.RESTClient().Get().AbsPath("/readyz").Do(r.Context()).Error()
		}),
		healthz.NamedCheck("certificates", func(*http.Request) error {
			err := errors.Join(p.ca.Check(), p.certificate.Check())
			if p.files != nil {
				err = errors.Join(err, p.files.Check())
			}
			return err
		}),
	)
	return live, ready, nil
}
