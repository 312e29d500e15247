// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/refusal"
)

// BoundIdentities refuses requests that impersonate somebody in many groups: an API server authorizes each of them, and then compares
// each with each subject of each binding.
func BoundIdentities(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 0
		for name, values := range r.Header {
			if name == authenticationv1.ImpersonateGroupHeader || strings.HasPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix) {
				n += len(values)
			}
		}
		if err := bounds.IdentityGroups.Check(int64(n)); err != nil {
			responsewriters.ErrorNegotiated(apierrors.NewForbidden(refusal.NoResource, "", err), legacyscheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
