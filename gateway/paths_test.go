// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/gateway"
)

// U1: what follows the name of a space or a tenant arrives as it was sent, byte for byte: names of API objects in paths may hold
// any character, and proxied ones any spelling. Of what could name two tenants, nothing arrives.
func TestPathsArriveAsTheyWereSent(t *testing.T) {
	var arrived *url.URL
	router := &gateway.Router{Lookup: func(space string) http.Handler {
		if space != "a" {
			return nil
		}
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived = r.URL })
	}, TenantOf: func(space string) string { return space }}
	part := rapid.OneOf(
		rapid.SampledFrom([]string{"", ".", "..", "%2e", "%2F", "%2f..%2f", "api", "spaces", "tenants", "%74enants", "watch", "a", "%00", "%25", "x:y", "~", "ü", "a%20b", ";v=1", "system:x"}),
		rapid.Map(rapid.String(), url.PathEscape),
	)
	rapid.Check(t, func(t *rapid.T) {
		path := "/" + strings.Join(rapid.SliceOfN(part, 1, 6).Draw(t, "path"), "/")
		query := rapid.SampledFrom([]string{"", "?limit=1", "?path=%2Fx&a=b", "?"}).Draw(t, "query")
		form := rapid.SampledFrom([][2]string{{"/spaces/a", ""}, {"/api/v1/tenants/a", "/api/v1"}, {"/apis/apps/v1/tenants/a", "/apis/apps/v1"}}).Draw(t, "form")
		request, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + form[0] + path + query + " HTTP/1.1\r\nHost: berth\r\n\r\n")))
		if err != nil {
			t.Skip("no server takes it") // such as control characters in a URL
		}
		want, err := url.ParseRequestURI(form[1] + path + query)
		if err != nil {
			t.Skip("no API server would take it")
		}
		arrived = nil
		w := httptest.NewRecorder()
		router.ServeHTTP(w, request)
		if full := form[1] != ""; arrived == nil && full && (w.Code == http.StatusBadRequest || w.Code == http.StatusNotFound) {
			t.Skip("it names two tenants, or no resource")
		}
		if arrived == nil {
			t.Fatalf("%q did not arrive", path)
		}
		if arrived.EscapedPath() != want.EscapedPath() || arrived.Path != want.Path || arrived.RawQuery != want.RawQuery {
			t.Fatalf("%q arrived as %q (%q ? %q)", path+query, arrived.EscapedPath(), arrived.Path, arrived.RawQuery)
		}
	})
}
