// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"net/http"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/gateway/forward"
	"github.com/berth-dev/berth/platform/peers"
	"github.com/berth-dev/berth/platform/process"
)

// joinShards waits until this process is the shard that the configuration names.
func (p *Platform) joinShards(ctx context.Context) error {
	if !p.config.Peers.Enabled() {
		return nil
	}
	host, err := process.LoadHostConfig(p.config.Host.Kubeconfig)
	if err != nil {
		return err
	}
	p.peers, err = peers.Open(ctx, peers.Config{
		Options: p.config.Peers, Host: host, Platform: p.config.PlatformName,
		DataDir: p.config.DataDir, Berth: p.config.Version.Berth, Kubernetes: p.config.Version.Kubernetes, Logger: p.logger.WithName("shards"),
	})
	return err
}

// serveShards serves the other shards.
func (p *Platform) serveShards(ctx context.Context) error {
	if p.peers == nil {
		return nil
	}
	stop, err := p.peers.Run(ctx, p.ca, http.HandlerFunc(p.serveForwarded), p.manager.Load)
	if err != nil {
		return err
	}
	p.onStop(stop)
	p.config.Progress("This process is the shard %s, and serves the others at %s", p.config.Peers.Name, p.config.Peers.Address)
	return nil
}

// drainShard has the spaces of this shard move to others before the process stops, while it serves.
func (p *Platform) drainShard() {
	if p.peers == nil {
		return
	}
	p.serving.Store(false) // no new connections come from a Service
	p.peers.Drain(p.manager.Movable)
}

// replaced returns a channel that is closed when another process is this shard.
func (p *Platform) replaced() <-chan struct{} {
	if p.peers == nil {
		return nil
	}
	return p.peers.Ended()
}

// serveForwarded serves a request that another shard has forwarded, by the rules of the endpoint that its client has reached.
func (p *Platform) serveForwarded(w http.ResponseWriter, r *http.Request) {
	if space := forward.PodOf(r); space != "" {
		p.pods.ServeSpace(space, w, r)
		return
	}
	p.router.ServeHTTP(w, r)
}

// elsewhere implements [gateway.Router.Elsewhere].
func (p *Platform) elsewhere(space string, r *http.Request) (forwarded http.Handler, leave func()) {
	return p.routed(space, r, p.router, func(next http.Handler) http.Handler { return next })
}

// elsewhereOfPod implements [gateway.Router.Elsewhere] for pods.
func (p *Platform) elsewhereOfPod(space string, r *http.Request) (forwarded http.Handler, leave func()) {
	return p.routed(space, r, p.servePod(space), func(next http.Handler) http.Handler { return forward.OfPod(space, next) })
}

// routed returns a handler for a request to a space that another process has, or that is being moved: after that, again gets it. Handlers of
// other shards are wrapped.
func (p *Platform) routed(space string, r *http.Request, again http.Handler, wrap func(http.Handler) http.Handler) (forwarded http.Handler, leave func()) {
	if p.peers == nil || space == gateway.SystemSpace {
		return nil, func() {}
	}
	wait, leave := p.manager.Enter(space, gateway.Lasts(r))
	if wait != nil {
		return p.held.until(wait, p.knows(space), again), nil
	}
	if shard := p.manager.ShardOf(space); shard != "" { // which doesn't change until leave is called, if it is this one
		leave()
		return wrap(p.peers.Handler(shard)), nil
	}
	if wait := p.manager.Arriving(space); wait != nil {
		leave()
		return p.held.until(wait, func(*http.Request) bool { return true }, again), nil // the keys by which clients are known aren't here yet
	}
	return nil, leave
}
