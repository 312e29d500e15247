// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/berth-dev/berth/gateway/resolve"
	"github.com/berth-dev/berth/gateway/tenantfields"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/httpstatus"
)

// SystemSpace is the name in paths of the host's own API (T3).
const SystemSpace = resolve.System

// Path returns the path of a space's API, without a trailing slash.
func Path(space string) string { return resolve.Prefix + space }

// Router routes requests to spaces by their paths, as package resolve says.
type Router struct {
	// Lookup returns the handler of a space; nil if there is none.
	Lookup func(space string) http.Handler
	// Elsewhere, if set, returns a handler for a request to a space that another process has, which gets it as it is: that process
	// identifies the client, limits, and records it. For all other spaces, it returns nil, and what to call when the request has ended.
	Elsewhere func(space string, r *http.Request) (forwarded http.Handler, leave func())
	// TenantOf, if set, returns the tenant of a space; "" if it has none. Without it, no path leads to a tenant.
	TenantOf func(space string) (tenant string)
	// GivesAccess, if set, reports whether a space gives any rights to a client of another tenant, who has the names of a visitor. It is the
	// same for a space that sleeps, and it wakes none.
	GivesAccess func(ctx context.Context, space string, visitor *identity.Identity) bool
	// Identify, if set, returns who makes a request, if the platform itself has given out its credential; nil if not. The error says to
	// the client why it can't be who it has proved to be.
	Identify func(r *http.Request) (*identity.Identity, error)
	// IdentifyAgain is how often Identify is asked about a request that lasts, which ends once the client is somebody else, or nobody. It
	// is 30 seconds if it is 0.
	IdentifyAgain time.Duration
	// Domain, if set, is the domain in which each space has a host name, SPACE.DOMAIN. Short paths are then for that space.
	Domain string
	// Own, if set, returns the space of a request whose path names none; "" if it is unknown. The result need not be
	// verified, because Verify does that.
	Own func(r *http.Request) (space string)
	// DefaultTenant, if set, is the tenant whose space the short paths of clients without a space are for.
	DefaultTenant string
	// Verify, if set, reports whether a request without an identity has a credential of a space, which need not exist, and returns the
	// request to serve. All other requests get the same response, so that nobody can find out which spaces exist. It
	// returns an error if it can't decide now.
	Verify func(space string, r *http.Request) (verified *http.Request, ok bool, err error)
	// Limiter, if set, limits the requests of each space.
	Limiter *Limiter
	// UserOf, if set, returns the user of a request whose credential has been accepted.
	UserOf func(r *http.Request) user.Info
	// Audit, if set, returns a handler that records requests to a space of a tenant, either of which may be "".
	Audit func(tenant, space string, next http.Handler) http.Handler
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
	named, err := g.spaceOfHost(r)
	if err != nil {
		refuseHost(w, err)
		return
	}
	who, err := g.identify(r)
	if err != nil {
		refuseIdentity(w, err)
		return
	}
	path := r.URL.EscapedPath()
	target, err := resolve.Resolve(path, cmp.Or(named, g.own(path, r, who)), g.DefaultTenant)
	if err != nil {
		refusePath(w, err, who == nil && r.Header.Get("Authorization") != "")
		return
	}
	if g.Elsewhere != nil {
		forwarded, leave := g.Elsewhere(target.Space, inside(r, target.Path))
		if forwarded != nil {
			forwarded.ServeHTTP(w, r)
			return
		}
		defer leave()
	}
	r = inside(g.identified(r, who), target.Path)
	switch {
	case who != nil && !g.isOf(who, target.Space):
		// What others than the space's own ask counts for their tenant, whether there is such a space or not.
		g.limited(target.Space, who.Name, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			visiting := g.visit(r, who, target.Space)
			if visiting == nil {
				g.audited(who.Tenant, "", refusingTenant(who, target.Space)).ServeHTTP(w, r)
				return
			}
			g.serve(target, w, visiting, func(next http.Handler) http.Handler { return g.limitedVisit(target.Space, next) })
		})).ServeHTTP(w, r)
		return
	case who == nil && g.Verify != nil:
		verified, ok, err := g.Verify(target.Space, r)
		if err != nil || !ok {
			refuseStranger(w, err)
			return
		}
		r = verified
	}
	g.serve(target, w, r, func(next http.Handler) http.Handler { return g.limited(target.Space, g.userOf(r), g.Meter, next) })
}

// serve serves a request of a client that may use the space.
func (g *Router) serve(target resolve.Target, w http.ResponseWriter, r *http.Request, limited func(http.Handler) http.Handler) {
	handler := g.Lookup(target.Space)
	if handler == nil {
		noSuchSpace(w)
		return
	}
	if target.Tenant != "" && g.tenantOf(target.Space) != target.Tenant {
		refuse(w, http.StatusNotFound, fmt.Sprintf("the space %s does not belong to a tenant of its name, so that it has no full path; use %s", target.Space, Path(target.Space)))
		return
	}
	handler = limited(g.audited(g.tenantOf(target.Space), target.Space, tenantfields.Wrap(target, handler)))
	g.serveSpace(target.Space, redirecting(target, handler), w, r)
}

// own returns the space that a short path of the client is for. The look-up parses tokens, and is left out for paths of spaces.
func (g *Router) own(path string, r *http.Request, who *identity.Identity) string {
	if who != nil {
		return who.Tenant
	}
	if g.Own == nil || strings.HasPrefix(path, resolve.Prefix) {
		return ""
	}
	return g.Own(r)
}

// inside returns a request with the path inside its space. The path has its escapes, which are valid.
func inside(r *http.Request, path string) *http.Request {
	u := url.URL{RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery} // without an opaque part, which a proxy would send on in place of the path
	u.Path, _ = url.PathUnescape(path)
	if u.EscapedPath() != path {
		u.RawPath = path
	}
	r2 := *r
	r2.URL = &u
	return &r2
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

// audited has requests to a space recorded. Those that a limit refuses are not: a flood of them would be a flood of records.
func (g *Router) audited(tenant, space string, next http.Handler) http.Handler {
	if g.Audit == nil {
		return next
	}
	return g.Audit(tenant, space, next)
}

func (g *Router) limitedVisit(space string, next http.Handler) http.Handler {
	if g.Limiter == nil {
		return next
	}
	return g.Limiter.limitVisit(space, g.Meter, next)
}

func (g *Router) limited(space, user string, meter Meter, next http.Handler) http.Handler {
	if g.Limiter == nil {
		return next
	}
	return g.Limiter.limit(space, user, meter, next)
}

// strangerTimeout limits how long a client without a credential may take to send the rest of its request, and to read
// the response.
const strangerTimeout = 5 * time.Second

// userOf returns the name of the user of a request.
func (g *Router) userOf(r *http.Request) string {
	if g.UserOf == nil {
		return ""
	}
	return g.UserOf(r).GetName()
}

// CloseAfter is for a process that has the connection of a client whose request another one has answered so.
func CloseAfter(w http.ResponseWriter) { closeAfter(w) }

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

// refusePath responds to a request whose path leads to no space. Clients with a credential that nobody knows, or knows any more, hear that,
// so that they get another one.
func refusePath(w http.ResponseWriter, err error, stranger bool) {
	code := http.StatusBadRequest
	if unresolved := (*resolve.Error)(nil); errors.As(err, &unresolved) {
		code = unresolved.Code
	}
	if stranger && code == http.StatusNotFound {
		refuseStranger(w, nil)
		return
	}
	refuse(w, code, err.Error())
}

func noSuchSpace(w http.ResponseWriter) {
	refuse(w, http.StatusNotFound, "the space does not exist here; check the server URL in your kubeconfig")
}

// refuse responds in a form that kubectl prints.
func refuse(w http.ResponseWriter, code int, message string) {
	closeAfter(w)
	reason := metav1.StatusReasonBadRequest
	if code == http.StatusNotFound {
		reason = metav1.StatusReasonNotFound
	}
	httpstatus.Write(w, code, reason, message, 0)
}
