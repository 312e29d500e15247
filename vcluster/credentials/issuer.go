// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"net/http"
	"strings"

	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/berth-dev/berth/vcluster/pki"
)

// SharedIssuer is what the tokens of all spaces said of their origin before each space had an issuer of its own, and an
// audience of the API that clients ask for by name. Tokens that bear it stay good until they end: a space's own key
// tells them from others'.
const SharedIssuer = "https://kubernetes.default.svc.cluster.local"

// ServeIssuer serves the documents that describe the space's issuer where its URL says, too: below a path that is not
// there otherwise.
func ServeIssuer(space string, next http.Handler) http.Handler {
	prefix := strings.TrimPrefix(pki.Issuer(space), SharedIssuer)
	below := http.StripPrefix(prefix, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path, ok := strings.CutPrefix(r.URL.Path, prefix); {
		case ok && (path == serviceaccount.OpenIDConfigPath || path == serviceaccount.JWKSPath):
			below.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
