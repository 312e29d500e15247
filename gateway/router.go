// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Prefix of the paths that lead to a space: Prefix + name + "/...".
const Prefix = "/spaces/"

// SystemSpace is the name under which the host's own API is a space (T3).
const SystemSpace = "system"

// Path is the path of a space's API, without a trailing slash.
func Path(space string) string { return Prefix + space }

// Router serves the spaces that lookup finds, each under its [Path].
type Router struct {
	// Lookup returns the handler of a space, nil if there is none.
	Lookup func(space string) http.Handler
	// Meter, if set, is told of each request that a space is found for.
	Meter Meter
	// Traces, if set, gets a span of each such request.
	Traces trace.TracerProvider
}

// ServeHTTP implements [http.Handler].
func (g *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/livez" || r.URL.Path == "/readyz" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok"))
		return
	}
	name, handler := g.find(r.URL)
	if handler == nil {
		notFound(w, name)
		return
	}
	here := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { redirecting(handler, w, r) })
	g.lead(name, http.StripPrefix(Path(name), here), w, rooted(r, name))
}

// lead has a space's handler serve a request, and tells those who want to know.
func (g *Router) lead(name string, handler http.Handler, w http.ResponseWriter, r *http.Request) {
	if g.Traces != nil {
		handler = traced(g.Traces, name, handler)
	}
	if g.Meter == nil {
		handler.ServeHTTP(w, r)
		return
	}
	metered(g.Meter, name, handler, w, r)
}

func (g *Router) find(u *url.URL) (space string, handler http.Handler) {
	rest, found := strings.CutPrefix(u.EscapedPath(), Prefix)
	if !found {
		return "", nil
	}
	// Names are DNS labels: an escape in one names nothing.
	space, _, _ = strings.Cut(rest, "/")
	return space, g.Lookup(space)
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

// notFound answers in a form that kubectl shows. It does not tell a space that
// sleeps elsewhere from one that never was: names are not for strangers to try.
func notFound(w http.ResponseWriter, space string) {
	message := "this is Berth's gateway; a space's API is at " + Prefix + "NAME: use the kubeconfig that `berth kubeconfig NAME` prints"
	if space != "" {
		message = "there is no such space here; check the server's URL in your kubeconfig"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: message,
	})
}
