// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"

	"github.com/go-logr/logr"

	"github.com/berth-dev/berth/internal/podconn"
)

// These limit the connections from pods. A client needs one or two.
const (
	maxPodConns      = 500 // of one space
	maxPodConnsTotal = 10_000
)

// Pods configures the endpoint for pods. Clients in pods use the name kubernetes.default.svc, which is the API of their
// own space.
type Pods struct {
	// SpaceAt returns the space of the pod with an address; ok is false if there is none.
	SpaceAt func(netip.Addr) (space string, ok bool)
	// Certificate returns the serving certificate of a space's API for its pods.
	Certificate func(space string) (*tls.Certificate, error)
	// Router finds the spaces, and counts and traces the requests.
	Router *Router
}

var errNoPod = errors.New("the connection is from no space's pod")

type podSpace struct{}

// ServePods starts to serve pods on listener. Connections from other addresses are closed.
func ServePods(listener net.Listener, p Pods, logger logr.Logger) *Server {
	listener = podconn.Listen(listener, podconn.Config{SpaceAt: p.spaceAt, PerSpace: maxPodConns, Total: maxPodConnsTotal})
	s := newServer(func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		space, ok := podconn.SpaceOf(hello.Conn)
		if !ok {
			return nil, errNoPod
		}
		return p.Certificate(space)
	}, http.HandlerFunc(p.serve), logger)
	s.http.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		space, _ := podconn.SpaceOf(c)
		return context.WithValue(ctx, podSpace{}, space)
	}
	return s.serve(newHandshakes(listener, func(c net.Conn) string {
		space, _ := podconn.SpaceOf(c)
		return space
	}))
}

// spaceAt excludes the host's own API: no tenant's space has that name.
func (p Pods) spaceAt(addr netip.Addr) (space string, ok bool) {
	space, ok = p.SpaceAt(addr)
	return space, ok && space != SystemSpace
}

func (p Pods) serve(w http.ResponseWriter, r *http.Request) {
	space, _ := r.Context().Value(podSpace{}).(string)
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	// While the connection stays open, the pod may be deleted and its address reused by a pod of another space.
	if now, ok := p.spaceAt(addr.Addr().Unmap()); err != nil || !ok || now != space {
		w.Header().Set("Connection", "close")
		http.Error(w, "the address no longer belongs to the pod that connected", http.StatusMisdirectedRequest)
		return
	}
	p.ServeSpace(space, w, inside(r, cmp.Or(r.URL.EscapedPath(), "/")))
}

// ServeSpace serves a request of a pod of a space, as the pod has sent it, which the endpoint for pods of another process may have received.
func (p Pods) ServeSpace(space string, w http.ResponseWriter, r *http.Request) {
	if p.Router.Elsewhere != nil {
		forwarded, leave := p.Router.Elsewhere(space, r)
		if forwarded != nil {
			forwarded.ServeHTTP(w, r)
			return
		}
		defer leave()
	}
	handler := p.Router.Lookup(space)
	if handler == nil {
		noSuchSpace(w)
		return
	}
	addr, _ := netip.ParseAddrPort(r.RemoteAddr)
	handler = p.Router.limited(space, addr.Addr().Unmap().String(), p.Router.Meter, p.recorded(space, handler))
	p.Router.serveSpace(space, handler, w, r)
}

// recorded has requests with a credential of the space recorded. Who sends others can name any user. The Verify of the Router must accept no
// other credentials: the space gets the result.
func (p Pods) recorded(space string, next http.Handler) http.Handler {
	if p.Router.Verify == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if verified, ok, err := p.Router.Verify(space, r); ok && err == nil {
			p.Router.audited(p.Router.tenantOf(space), space, next).ServeHTTP(w, verified)
			return
		}
		next.ServeHTTP(w, r) // the API server refuses it
	})
}
