// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// redirecting serves a request whose handler does not know that its paths begin with a prefix: where it redirects to
// a path of its own, the client is led there by a relative one. That is good for clients that came by `kubectl proxy` as
// well, which may have put the prefix before the path.
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

// relative is the reference by which path leads to the path to, whatever stands before both. What is no path stays.
func relative(path, to string) string {
	rest, rooted := strings.CutPrefix(to, "/")
	if !rooted || strings.HasPrefix(rest, "/") || strings.Contains(path, "/.") {
		return to // another host; or steps that a client takes before it goes up
	}
	if up := strings.Count(path, "/") - 1; up > 0 {
		return strings.Repeat("../", up) + rest
	}
	return "./" + rest
}
