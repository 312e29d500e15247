// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/internal/httpstatus"
)

// Prefix is the prefix of the paths of spaces: Prefix + name + "/...".
const Prefix = "/spaces/"

// SystemSpace is the name in paths of the host's own API (T3).
const SystemSpace = "system"

// Path returns the path of a space's API, without a trailing slash.
func Path(space string) string { return Prefix + space }

// Router routes requests to spaces by their [Path].
type Router struct {
	// Lookup returns the handler of a space; nil if there is none.
	Lookup func(space string) http.Handler
	// Own, if set, returns the space of a request without [Prefix]; "" if it is unknown. The result need not be
	// verified, because Verify does that.
	Own func(r *http.Request) (space string)
	// Verify, if set, reports whether a request has a credential of a space, which need not exist, and returns the
	// request to serve. All other requests get the same response, so that nobody can find out which spaces exist. It
	// returns an error if it can't decide now.
	Verify func(space string, r *http.Request) (verified *http.Request, ok bool, err error)
	// Limiter, if set, limits the requests of each space.
	Limiter *Limiter
	// Meter, if set, counts each request to a space that exists.
	Meter Meter
	// Traces, if set, gets a span for each such request.
	Traces trace.TracerProvider
}

// ServeHTTP implements [http.Handler].
func (g *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/livez" || r.URL.Path == "/readyz" {
		closeAfter(w)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok"))
		return
	}
	name, prefix := spaceOf(r.URL), ""
	switch {
	case name != "":
		prefix = Path(name)
		r = rooted(r, name)
	case g.Own != nil && !strings.HasPrefix(r.URL.EscapedPath(), Prefix):
		name = g.Own(r)
	}
	if name == "" {
		notFound(w, name)
		return
	}
	if g.Verify != nil {
		verified, ok, err := g.Verify(name, r)
		if err != nil || !ok {
			refuseStranger(w, err)
			return
		}
		r = verified
	}
	handler := g.Lookup(name)
	if handler == nil {
		notFound(w, name)
		return
	}
	handler = g.limited(name, handler)
	here := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { redirecting(handler, w, r) })
	g.serveSpace(name, http.StripPrefix(prefix, here), w, r)
}

// serveSpace serves a request with a space's handler, and counts and traces it.
func (g *Router) serveSpace(name string, handler http.Handler, w http.ResponseWriter, r *http.Request) {
	if g.Traces != nil {
		handler = traced(g.Traces, name, handler)
	}
	if g.Meter == nil {
		handler.ServeHTTP(w, r)
		return
	}
	metered(g.Meter, name, handler, w, r)
}

func (g *Router) limited(space string, next http.Handler) http.Handler {
	if g.Limiter == nil {
		return next
	}
	return g.Limiter.limit(space, g.Meter, next)
}

// spaceOf returns the space that a path names; "" if it names none.
func spaceOf(u *url.URL) string {
	rest, found := strings.CutPrefix(u.EscapedPath(), Prefix)
	if !found {
		return ""
	}
	// Names are DNS labels, so a name with an escape is not a space.
	space, _, _ := strings.Cut(rest, "/")
	return space
}

// rooted makes /spaces/NAME mean the root of the space.
func rooted(r *http.Request, name string) *http.Request {
	if r.URL.EscapedPath() != Path(name) {
		return r
	}
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath = Path(name)+"/", ""
	return r
}

// strangerTimeout limits how long a client without a credential may take to send the rest of its request, and to read
// the response.
const strangerTimeout = 5 * time.Second

// closeAfter closes the connection after a response that needs no credential. Such a connection must not keep the place
// of others, and no limit applies to its requests, whereas TLS handshakes are limited.
func closeAfter(w http.ResponseWriter) {
	deadline := time.Now().Add(strangerTimeout)
	answer := http.NewResponseController(w)
	_, _ = answer.SetReadDeadline(deadline), answer.SetWriteDeadline(deadline) // fails in tests, where it may not be a connection
	w.Header().Set("Connection", "close")
}

// refuseStranger responds to a client without a credential of the space. The response is the same whether the space
// exists, sleeps, or fails.
func refuseStranger(w http.ResponseWriter, err error) {
	closeAfter(w)
	if err != nil {
		httpstatus.Write(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, err.Error()+"; try again later", time.Second)
		return
	}
	httpstatus.Unauthorized(w)
}

// notFound responds in a form that kubectl prints.
func notFound(w http.ResponseWriter, space string) {
	closeAfter(w)
	message := "this is Berth's gateway; a space's API is at " + Prefix + "NAME: use the kubeconfig that `berth kubeconfig NAME` prints"
	if space != "" {
		message = "the space does not exist here; check the server URL in your kubeconfig"
	}
	httpstatus.Write(w, http.StatusNotFound, metav1.StatusReasonNotFound, message, 0)
}
