// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/inside"
	"github.com/berth-dev/berth/vcluster/refusal"
)

// BoundSelectors refuses requests whose selectors have more terms than [bounds.SelectorTerms]. A watch keeps them, parsed, until it ends,
// and compares each object that changes with each of them.
func BoundSelectors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkSelectors(r); err != nil {
			responsewriters.ErrorNegotiated(apierrors.NewForbidden(refusal.NoResource, "", err), legacyscheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func checkSelectors(r *http.Request) error {
	// Each term takes a character at least, and few requests have a query that long.
	if bounds.SelectorTerms.Check(int64(len(r.URL.RawQuery))) == nil || inside.Is(r.Context()) {
		return nil
	}
	query := r.URL.Query()
	for _, name := range []string{"labelSelector", "fieldSelector"} {
		for _, selector := range query[name] {
			if err := bounds.SelectorTerms.Check(int64(1 + strings.Count(selector, ","))); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}
