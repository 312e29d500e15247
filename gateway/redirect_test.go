// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/berth-dev/berth/gateway"
)

// S5: a space's API redirects within itself, and does not know where it is. Clients arrive nevertheless, those of
// `kubectl proxy` too, who see it at the root.
func TestRedirectsStayInTheSpace(t *testing.T) {
	for name, c := range map[string]struct{ path, to, want string }{
		"a slash is missing":      {"/api/v1/namespaces/n/pods/p/proxy", "/api/v1/namespaces/n/pods/p/proxy/?x=1", "/api/v1/namespaces/n/pods/p/proxy/?x=1"},
		"to another page":         {"/proxy/a/b", "/proxy/c", "/proxy/c"},
		"from the root":           {"/", "/api", "/api"},
		"a colon is in the first": {"/x", "/http:p:80/", "/http:p:80/"},
		"escapes stay":            {"/a%2Fb/c", "/a%2Fb/d%20e", "/a%2Fb/d%20e"},
		"empty parts":             {"/a//b/c", "/a//d", "/a//d"},
	} {
		t.Run(name, func(t *testing.T) {
			router := &gateway.Router{Lookup: func(string) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Location", c.to)
					w.WriteHeader(http.StatusFound)
				})
			}}
			answer := httptest.NewRecorder()
			router.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "https://berth.example/spaces/a"+c.path, nil))
			location, err := url.Parse(answer.Header().Get("Location"))
			if err != nil {
				t.Fatal(err)
			}
			for _, base := range []string{"https://berth.example/spaces/a", "http://localhost:8001"} {
				from, err := url.Parse(base + c.path)
				if err != nil {
					t.Fatal(err)
				}
				if got := from.ResolveReference(location).String(); got != base+c.want {
					t.Errorf("%s leads from %s to %s, want %s", location, from, got, base+c.want)
				}
			}
		})
	}
}

// U1: whoever came by a full path is redirected to one, or to the path of the space if there is none.
func TestRedirectsKeepTheTenant(t *testing.T) {
	for name, c := range map[string]struct{ path, to, want string }{
		"a slash is missing": {
			"/api/v1/tenants/a/namespaces/n/pods/p/proxy", "/api/v1/namespaces/n/pods/p/proxy/?x=/y", "/api/v1/tenants/a/namespaces/n/pods/p/proxy/?x=/y",
		},
		"to another group":  {"/api/v1/tenants/a/pods", "/apis/apps/v1/deployments#x", "/apis/apps/v1/tenants/a/deployments#x"},
		"to no resource":    {"/apis/apps/v1/tenants/a/x%2Fy/z", "/version?x", "/spaces/a/version?x"},
		"to the root":       {"/api/v1/tenants/a/pods", "/", "/spaces/a/"},
		"behind dots":       {"/api/v1/tenants/a/pods/../x", "/api/v1/y", "/api/v1/tenants/a/y"},
		"to another host":   {"/api/v1/tenants/a/pods", "//example.com/x", "//example.com/x"},
		"to another scheme": {"/api/v1/tenants/a/pods", "http://example.com/x", "http://example.com/x"},
	} {
		t.Run(name, func(t *testing.T) {
			router := &gateway.Router{TenantOf: func(space string) string { return space }, Lookup: func(string) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Location", c.to)
					w.WriteHeader(http.StatusFound)
				})
			}}
			answer := httptest.NewRecorder()
			router.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://berth.example"+c.path, nil))
			location, err := url.Parse(answer.Header().Get("Location"))
			if err != nil {
				t.Fatal(err)
			}
			from, err := url.Parse("https://berth.example" + c.path)
			if err != nil {
				t.Fatal(err)
			}
			want, err := from.Parse(c.want)
			if err != nil {
				t.Fatal(err)
			}
			if got := from.ResolveReference(location).String(); got != want.String() {
				t.Errorf("%s leads to %s, want %s", location, got, want)
			}
		})
	}
}

// What leads elsewhere is left alone.
func TestRedirectsToOthersStayAsTheyAre(t *testing.T) {
	for _, to := range []string{"https://example.com/x", "//example.com/x", "there", "../x"} {
		router := &gateway.Router{Lookup: func(string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", to)
				w.WriteHeader(http.StatusFound)
			})
		}}
		answer := httptest.NewRecorder()
		router.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "https://berth.example/spaces/a/b", nil))
		if got := answer.Header().Get("Location"); got != to {
			t.Errorf("%s became %s", to, got)
		}
	}
}
