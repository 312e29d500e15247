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

// What follows a space's name arrives as it was sent, byte for byte: names of
// API objects in paths may hold any character, and proxied ones any spelling.
func TestPathsArriveAsTheyWereSent(t *testing.T) {
	var arrived *url.URL
	router := &gateway.Router{Lookup: func(space string) http.Handler {
		if space != "a" {
			return nil
		}
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived = r.URL })
	}}
	part := rapid.OneOf(
		rapid.SampledFrom([]string{"", ".", "..", "%2e", "%2F", "%2f..%2f", "api", "spaces", "a", "%00", "%25", "x:y", "~", "ü", "a%20b", ";v=1", "system:x"}),
		rapid.Map(rapid.String(), url.PathEscape),
	)
	rapid.Check(t, func(t *rapid.T) {
		path := "/" + strings.Join(rapid.SliceOfN(part, 1, 6).Draw(t, "path"), "/")
		query := rapid.SampledFrom([]string{"", "?limit=1", "?path=%2Fx&a=b", "?"}).Draw(t, "query")
		request, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET /spaces/a" + path + query + " HTTP/1.1\r\nHost: berth\r\n\r\n")))
		if err != nil {
			t.Skip("no server takes it") // such as control characters in a URL
		}
		want, err := url.ParseRequestURI(path + query)
		if err != nil {
			t.Skip("no API server would take it")
		}
		arrived = nil
		router.ServeHTTP(httptest.NewRecorder(), request)
		if arrived == nil {
			t.Fatalf("%q did not arrive", path)
		}
		if arrived.EscapedPath() != want.EscapedPath() || arrived.Path != want.Path || arrived.RawQuery != want.RawQuery {
			t.Fatalf("%q arrived as %q (%q ? %q)", path+query, arrived.EscapedPath(), arrived.Path, arrived.RawQuery)
		}
	})
}
