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

// Prefix of the paths that lead to a space: Prefix + name + "/...".
const Prefix = "/spaces/"

// SystemSpace is the name under which the host's own API is a space (T3).
const SystemSpace = "system"

// Path is the path of a space's API, without a trailing slash.
func Path(space string) string { return Prefix + space }

// Router serves the spaces that Lookup finds, each under its [Path].
type Router struct {
	// Lookup returns the handler of a space, nil if there is none.
	Lookup func(space string) http.Handler
	// Own, if set, names the space that a request without [Prefix] is for, "" if
	// that can't be said. It need not be true: Verify finds out.
	Own func(r *http.Request) (space string)
	// Verify, if set, reports whether a request bears a credential of a space, there
	// or not, and returns the request to serve. All others are answered alike, so
	// that nobody can find out which spaces there are. It fails when it can't tell
	// now.
	Verify func(space string, r *http.Request) (verified *http.Request, ok bool, err error)
	// Limiter, if set, bounds the requests of each space.
	Limiter *Limiter
	// Meter, if set, counts each request that a space is found for.
	Meter Meter
	// Traces, if set, gets a span of each such request.
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

// serveSpace has a space's handler serve a request, which is counted and traced.
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

// spaceOf is the space that a path names, "" if it names none.
func spaceOf(u *url.URL) string {
	rest, found := strings.CutPrefix(u.EscapedPath(), Prefix)
	if !found {
		return ""
	}
	// Names are DNS labels: an escape in one names nothing.
	space, _, _ := strings.Cut(rest, "/")
	return space
}

// rooted makes /spaces/NAME alone mean the space's root.
func rooted(r *http.Request, name string) *http.Request {
	if r.URL.EscapedPath() != Path(name) {
		return r
	}
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath = Path(name)+"/", ""
	return r
}

// strangerTimeout bounds what a client without a credential takes to send the rest
// of its request, and to read the answer.
const strangerTimeout = 5 * time.Second

// closeAfter has the connection end with an answer that needs no credential. A connection that is of use to nobody must not take
// the place of others; and no limit holds for such requests, but clients take turns with handshakes.
func closeAfter(w http.ResponseWriter) {
	deadline := time.Now().Add(strangerTimeout)
	answer := http.NewResponseController(w)
	_, _ = answer.SetReadDeadline(deadline), answer.SetWriteDeadline(deadline) // in tests it may be no connection
	w.Header().Set("Connection", "close")
}

// refuseStranger answers a client that bears no credential of the space it names.
// The answer is the same whether the space exists, sleeps, or fails.
func refuseStranger(w http.ResponseWriter, err error) {
	closeAfter(w)
	if err != nil {
		httpstatus.Write(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, err.Error()+"; try again later", time.Second)
		return
	}
	httpstatus.Unauthorized(w)
}

// notFound answers in a form that kubectl shows.
func notFound(w http.ResponseWriter, space string) {
	closeAfter(w)
	message := "this is Berth's gateway; a space's API is at " + Prefix + "NAME: use the kubeconfig that `berth kubeconfig NAME` prints"
	if space != "" {
		message = "the space does not exist here; check the server URL in your kubeconfig"
	}
	httpstatus.Write(w, http.StatusNotFound, metav1.StatusReasonNotFound, message, 0)
}
