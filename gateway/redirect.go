// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// redirecting serves a request whose handler does not know that its paths have a prefix. It makes redirects to the
// handler's own paths relative. These also work with `kubectl proxy`, which may add the prefix itself.
func redirecting(next http.Handler, w http.ResponseWriter, r *http.Request) {
	next.ServeHTTP(responsewriter.WrapForHTTP1Or2(&redirectWriter{ResponseWriter: w, path: r.URL.EscapedPath()}), r)
}

// redirectWriter makes redirects relative to path.
type redirectWriter struct {
	http.ResponseWriter
	path string
}

var _ responsewriter.UserProvidedDecorator = (*redirectWriter)(nil)

// Unwrap implements [responsewriter.UserProvidedDecorator], and serves
// [http.ResponseController].
func (w *redirectWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *redirectWriter) WriteHeader(code int) {
	if to := w.Header().Get("Location"); to != "" {
		w.Header().Set("Location", relative(w.path, to))
	}
	w.ResponseWriter.WriteHeader(code)
}

// relative returns the relative reference from path to the path to. If to is not a path, it is returned unchanged.
func relative(path, to string) string {
	rest, rooted := strings.CutPrefix(to, "/")
	if !rooted || strings.HasPrefix(rest, "/") || strings.Contains(path, "/.") {
		return to // another host, or dot segments, which a client resolves first
	}
	if up := strings.Count(path, "/") - 1; up > 0 {
		return strings.Repeat("../", up) + rest
	}
	return "./" + rest
}
