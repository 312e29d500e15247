// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package side

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/vcluster/pki"
)

// port is the TLS port of one process, on a loopback address that the system picks.
type port struct {
	listener net.Listener
	ca       *pki.CA
}

func openPort(ctx context.Context, dir string) (*port, error) {
	ca, err := pki.OpenCA(filepath.Join(dir, "serving"), "bench")
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return &port{listener: listener, ca: ca}, nil
}

// url is where a space's API is served.
func (p *port) url(space string) string {
	return "https://" + p.listener.Addr().String() + gateway.Path(space)
}

// serve serves the spaces that lookup finds, within the limits of a limiter that may be nil. The server that it returns owns the
// listener.
func (p *port) serve(lookup func(space string) http.Handler, limiter *gateway.Limiter) (*gateway.Server, error) {
	certificate, err := p.ca.Serving("127.0.0.1")
	if err != nil {
		return nil, err
	}
	return gateway.Serve(p.listener, certificate.Get, &gateway.Router{Lookup: lookup, Limiter: limiter}, klog.Background()), nil
}
