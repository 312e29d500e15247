// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/berth-dev/berth/gateway/resolve"
)

// redirecting serves requests to a target with a handler that knows its own paths only. It makes redirects to these paths
// relative. These also work with `kubectl proxy`, which may add the prefix of a space itself.
func redirecting(target resolve.Target, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(&redirectWriter{ResponseWriter: w, target: target}), r)
	})
}

// redirectWriter makes redirects relative to the path that the client sent.
type redirectWriter struct {
	http.ResponseWriter
	target resolve.Target
}

var _ responsewriter.UserProvidedDecorator = (*redirectWriter)(nil)

// Unwrap implements [responsewriter.UserProvidedDecorator], and serves
// [http.ResponseController].
func (w *redirectWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *redirectWriter) WriteHeader(code int) {
	if to := w.Header().Get("Location"); to != "" {
		w.Header().Set("Location", relative(outside(w.target, w.target.Path), outside(w.target, to)))
	}
	w.ResponseWriter.WriteHeader(code)
}

// outside returns how a client reaches a path of a space in the form that its own path has. For the path of a space, this
// is without the prefix. If to is not a path, it is returned unchanged.
func outside(target resolve.Target, to string) string {
	if target.Tenant == "" || !isPath(to) {
		return to
	}
	path, query := to, ""
	if i := strings.IndexAny(to, "?#"); i >= 0 {
		path, query = to[:i], to[i:]
	}
	u, err := url.Parse(path) // which adds escapes that are missing
	if err != nil {
		return to
	}
	if full, ok := resolve.Full(target.Tenant, u.EscapedPath()); ok {
		return full + query
	}
	return Path(target.Space) + to
}

// isPath reports whether a reference is a path on the same host.
func isPath(to string) bool { return strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") }

// relative returns the relative reference from path to the path to. If to is not a path, it is returned unchanged.
func relative(path, to string) string {
	if !isPath(to) || strings.Contains(path, "/.") {
		return to // another host, or dot segments, which a client resolves first
	}
	rest := to[1:]
	if up := strings.Count(path, "/") - 1; up > 0 {
		return strings.Repeat("../", up) + rest
	}
	return "./" + rest
}
