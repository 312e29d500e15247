// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantfields

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/berth-dev/berth/gateway/resolve"
	"github.com/berth-dev/berth/internal/httpstatus"
)

// Wrap returns the handler of a space for requests to a target. If that names a tenant, JSON documents have the fields of full
// paths. Otherwise, it is the handler itself.
func Wrap(target resolve.Target, next http.Handler) http.Handler {
	if target.Tenant == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := infoOf(r)
		root := rootOf(info)
		if root == nothing {
			next.ServeHTTP(w, r)
			return
		}
		r = r.WithContext(r.Context()) // a copy
		r.Header = r.Header.Clone()
		r.Header.Del("Accept-Encoding")
		answer := &response{ResponseWriter: w, refused: func() error { return nil }}
		answer.adder = adder{scanner: scanner{root: root}, tenant: target.Tenant, links: linksOf(target.Tenant, info)}
		switch formOf(r) {
		case objectForm:
			b := &body{Closer: r.Body, source: r.Body, remover: newRemover(target.Tenant), part: make([]byte, bodyPart)}
			r.Body, answer.refused = b, b.why
		case patchForm:
			if err := readPatch(target.Tenant, r); err != nil {
				httpstatus.Write(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), 0)
				return
			}
		}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(answer), r)
		answer.finish()
	})
}
