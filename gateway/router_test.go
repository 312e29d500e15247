// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
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
	tenants := map[string]string{"a": "a", "a--b": "a", "system": "system"}
	return &gateway.Router{
		Lookup:   func(space string) http.Handler { return spaces[space] },
		TenantOf: func(space string) string { return tenants[space] },
	}
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

// U1, U3: a path that names a tenant leads to the space of its name, whoever asks, if it is the tenant's.
func TestFullPathsLeadToTheTenantsSpaceOnly(t *testing.T) {
	for name, tc := range map[string]struct{ path, own, want, reason string }{
		"cluster-scoped":   {"/api/v1/tenants/a/namespaces?limit=5", "", "a /api/v1/namespaces limit=5", "the tenant is taken out, the query stays"},
		"namespaced":       {"/apis/apps/v1/tenants/a/namespaces/n/deployments/d", "", "a /apis/apps/v1/namespaces/n/deployments/d ", "the rest stays"},
		"tenant wins":      {"/api/v1/tenants/a/pods", "a--b", "a /api/v1/pods ", "another space is the client's own"},
		"host":             {"/api/v1/tenants/system/nodes", "", "system /api/v1/nodes ", "the host is the space of the tenant system (T3)"},
		"escapes":          {"/api/v1/tenants/a/x%2Fy/%2e%2e", "", "a /api/v1/x%2Fy/%2e%2e ", "what follows arrives as it was sent"},
		"another's space":  {"/api/v1/tenants/a--b/pods", "a--b", "404 belong", "it is the space of the tenant a"},
		"unknown":          {"/api/v1/tenants/c/pods", "a", "404 not exist", "the tenant is not there"},
		"two tenants":      {"/api/v1/tenants/a/tenants/system/pods", "a", "400 another one", "who is meant is not clear"},
		"another spelling": {"/api/v1/tenants/%61/pods", "a", "400 without escapes", "a name has no other spelling"},
		"a Tenant object":  {"/apis/berth.dev/v1alpha1/tenants/c/status", "system", "system /apis/berth.dev/v1alpha1/tenants/c/status ", "it is in the client's own space"},
		"in a space":       {"/spaces/a--b/api/v1/tenants/a/pods", "a", "a--b /api/v1/tenants/a/pods ", "the path of a space is the space's"},
	} {
		t.Run(name, func(t *testing.T) {
			g := router()
			g.Own = func(*http.Request) string { return tc.own }
			w := httptest.NewRecorder()
			g.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.path, nil))
			got := w.Body.String()
			if w.Code != http.StatusOK {
				var status metav1.Status
				if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || int(status.Code) != w.Code {
					t.Errorf("%s: got %d %s", tc.reason, w.Code, w.Body)
				}
				code, says, _ := strings.Cut(tc.want, " ")
				if code == strconv.Itoa(w.Code) && strings.Contains(status.Message, says) {
					return
				}
			}
			if got != tc.want {
				t.Errorf("%s: got %d %q, want %q", tc.reason, w.Code, got, tc.want)
			}
		})
	}
}

// S19: a client learns only with a credential of the space that it is not the tenant's.
func TestHostileTenantsAreAskedForACredentialFirst(t *testing.T) {
	g := router()
	g.Verify = func(space string, r *http.Request) (*http.Request, bool, error) {
		return r, r.Header.Get("Of") == space, nil
	}
	for path, want := range map[string]int{
		"/api/v1/tenants/a/pods": http.StatusOK, "/api/v1/tenants/a--b/pods": http.StatusNotFound, "/api/v1/tenants/c/pods": http.StatusNotFound,
	} {
		tenant := strings.Split(path, "/")[4]
		for credential, code := range map[string]int{tenant: want, "another": http.StatusUnauthorized, "": http.StatusUnauthorized} {
			r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil), httptest.NewRecorder()
			r.Header.Set("Of", credential)
			if g.ServeHTTP(w, r); w.Code != code {
				t.Errorf("%s with a credential of %q: got %d, want %d", path, credential, w.Code, code)
			}
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
