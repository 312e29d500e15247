// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/gateway"
)

// echo answers with the space that was routed to and the path as it arrived.
func echo(space string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, space+" "+r.URL.EscapedPath()+" "+r.URL.RawQuery)
	})
}

func router() *gateway.Router {
	spaces := map[string]http.Handler{"a": echo("a"), "a--b": echo("a--b"), "system": echo("system")}
	return &gateway.Router{Lookup: func(space string) http.Handler { return spaces[space] }}
}

// T2: the path names the space, exactly; no spelling of it leads elsewhere.
func TestPathsLeadToTheirSpaceOnly(t *testing.T) {
	cases := map[string]struct {
		path, want, reason string
	}{
		"api":             {"/spaces/a/api/v1/pods?limit=5", "a /api/v1/pods limit=5", "the prefix is taken away, the query stays"},
		"longer name":     {"/spaces/a--b/api", "a--b /api ", "a name that begins like another is its own"},
		"host":            {"/spaces/system/api", "system /api ", "the host is the space system (T3)"},
		"root":            {"/spaces/a/", "a / ", "the space's root"},
		"bare":            {"/spaces/a", "a / ", "kubectl cluster-info asks without a slash"},
		"escaped slash":   {"/spaces/a/api/v1/x%2Fy", "a /api/v1/x%2Fy ", "names in proxy paths arrive as they were sent"},
		"dots stay":       {"/spaces/a/../a--b/api", "a /../a--b/api ", "dots don't lead out of a space"},
		"escaped dots":    {"/spaces/a/%2e%2e/a--b/api", "a /%2e%2e/a--b/api ", "nor do escaped ones"},
		"unknown":         {"/spaces/c/api", "", "does not exist"},
		"escaped name":    {"/spaces/%61/api", "", "a name has no other spelling"},
		"escaped divider": {"/spaces/a%2Fapi", "", "an escaped slash ends no name"},
		"empty name":      {"/spaces//api", "", "no name"},
		"upper case":      {"/spaces/A/api", "", "names are lower case"},
		"elsewhere":       {"/api/v1/pods", "", "there is no default space yet"},
		"other prefix":    {"/spacesa/api", "", "the prefix ends with a slash"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			u, err := url.Parse(tc.path)
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			router().ServeHTTP(w, &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}})
			if tc.want == "" {
				var status metav1.Status
				if err := json.Unmarshal(w.Body.Bytes(), &status); w.Code != http.StatusNotFound || err != nil || status.Message == "" {
					t.Errorf("%s: got %d %s", tc.reason, w.Code, w.Body)
				}
				return
			}
			if got := w.Body.String(); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestTheGatewaysOwnHealthNeedsNoSpace(t *testing.T) {
	for _, path := range []string{"/livez", "/readyz"} {
		w := httptest.NewRecorder()
		router().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// U2: a path without a prefix is for the client's own space, if that can be said.
func TestPathsWithoutAPrefixLeadToTheClientsOwnSpace(t *testing.T) {
	g := router()
	g.Own = func(r *http.Request) string { return r.Header.Get("Own") }
	for name, tc := range map[string]struct{ path, own, want, reason string }{
		"api":            {"/api/v1/pods?limit=5", "a", "a /api/v1/pods limit=5", "as kubectl proxy asks"},
		"root":           {"/", "a", "a / ", "the space's root"},
		"prefix wins":    {"/spaces/a--b/api", "a", "a--b /api ", "who names a space means it (U3)"},
		"another's name": {"/spaces/c/api", "a", "", "a space that is not there is not one's own"},
		"no name":        {"/spaces//api", "a", "", "nor is one without a name"},
		"a stranger":     {"/api", "", "", "nothing says which space"},
		"own is unknown": {"/api", "c", "", "a client can say any name"},
	} {
		t.Run(name, func(t *testing.T) {
			r, w := httptest.NewRequest(http.MethodGet, tc.path, nil), httptest.NewRecorder()
			r.Header.Set("Own", tc.own)
			g.ServeHTTP(w, r)
			if got := w.Body.String(); tc.want != "" && got != tc.want || tc.want == "" && w.Code != http.StatusNotFound {
				t.Errorf("%s: got %d %q, want %q", tc.reason, w.Code, got, tc.want)
			}
		})
	}
}
