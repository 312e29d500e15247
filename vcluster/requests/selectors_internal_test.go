// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	_ "k8s.io/kubernetes/pkg/apis/core/install" // so that errors can be encoded
)

// L3: a selector with many terms would be compared with each object that changes.
func TestHostileLongSelectorsAreRefused(t *testing.T) {
	served := false
	handler := BoundSelectors(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }))
	terms := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("!k%d", i)
		}
		return strings.Join(all, ",")
	}
	values := "k in (" + strings.TrimSuffix(strings.Repeat("v,", 501), ",") + ")"
	for name, c := range map[string]struct {
		query  string
		served bool
	}{
		"none":                   {"watch=1", true},
		"a long continue token":  {"continue=" + strings.Repeat("x,", 1000), true},
		"500 terms":              {"labelSelector=" + url.QueryEscape(terms(500)), true},
		"501 terms":              {"watch=1&labelSelector=" + url.QueryEscape(terms(501)), false},
		"501 terms, not escaped": {"labelSelector=" + terms(501), false},
		"501 values":             {"labelSelector=" + url.QueryEscape(values), false},
		"501 fields":             {"fieldSelector=" + url.QueryEscape(terms(501)), false},
		"the second one":         {"labelSelector=a&labelSelector=" + url.QueryEscape(terms(501)), false},
	} {
		t.Run(name, func(t *testing.T) {
			served = false
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?"+c.query, http.NoBody))
			if served != c.served {
				t.Errorf("it is served: %t, want %t", served, c.served)
			}
			if !served && (w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "Selector: 50") || !strings.Contains(w.Body.String(), "selector-terms")) {
				t.Errorf("it gets %d: %s", w.Code, w.Body)
			}
		})
	}
}
