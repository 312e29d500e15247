// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/identity"
)

// Z1, Z2: a client whom the platform knows reaches spaces of its tenant, or all as a system user, and the space gets the identity in place
// of the credential.
func TestIdentitiesReachTheSpacesOfTheirTenant(t *testing.T) {
	tenants := map[string]string{"solar": "solar", "solar-two": "solar", "lunar": "lunar", "alone": ""}
	router := &gateway.Router{
		Identify: func(r *http.Request) (*identity.Identity, error) {
			switch tenant := r.Header.Get("Authorization"); tenant {
			case "":
				return nil, nil
			case "refused":
				return nil, errors.New("your credential names nobody")
			default:
				return &identity.Identity{Name: "alice", Tenant: tenant}, nil
			}
		},
		TenantOf: func(space string) string { return tenants[space] },
		Verify:   func(string, *http.Request) (*http.Request, bool, error) { return nil, false, nil },
		Lookup: func(space string) http.Handler {
			if _, ok := tenants[space]; !ok && space != gateway.SystemSpace {
				return nil
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if who := identity.From(r.Context()); who == nil || who.Name != "alice" || r.Header.Get("Authorization") != "" {
					t.Errorf("%s gets the identity %v, and %v", space, who, r.Header)
				}
				w.Header().Set("Space", space)
			})
		},
	}
	for _, c := range []struct {
		tenant, path, space string
		code                int
	}{
		{"solar", "/api/v1/pods", "solar", 200},
		{"solar", "/api/v1/tenants/solar/pods", "solar", 200},
		{"solar", "/spaces/solar-two/api/v1/pods", "solar-two", 200},
		{"solar", "/spaces/lunar/api/v1/pods", "", 403},
		{"solar", "/api/v1/tenants/lunar/pods", "", 403},
		{"solar", "/api/v1/tenants/system/nodes", "", 403},
		{"solar", "/spaces/alone/api", "", 403},
		{"solar", "/spaces/nobody/api", "", 403},
		{"nobody", "/api/v1/pods", "", 403},
		{"system", "/api/v1/nodes", "system", 200},
		{"system", "/spaces/alone/api", "alone", 200},
		{"system", "/api/v1/tenants/lunar/pods", "lunar", 200},
		{"system", "/spaces/nobody/api", "", 404},
		{"refused", "/api/v1/pods", "", 401},
		{"", "/spaces/solar/api", "", 401},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		if c.tenant != "" {
			r.Header.Set("Authorization", c.tenant)
		}
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		if w.Code != c.code || w.Header().Get("Space") != c.space {
			t.Errorf("%s for %q: %d from %q; want %d from %q", c.path, c.tenant, w.Code, w.Header().Get("Space"), c.code, c.space)
		}
	}
}

// A request that lasts ends once its client is no longer known, or is somebody else.
func TestARequestEndsWithTheIdentityOfItsClient(t *testing.T) {
	for _, then := range []*identity.Identity{nil, {Name: "alice", Tenant: "solar", Groups: []string{"other"}}} {
		var asked atomic.Int32
		router := &gateway.Router{
			IdentifyAgain: time.Millisecond,
			Identify: func(*http.Request) (*identity.Identity, error) {
				if asked.Add(1) > 3 {
					return then, nil
				}
				return &identity.Identity{Name: "alice", Tenant: "solar"}, nil
			},
			TenantOf: func(space string) string { return space },
			Lookup: func(string) http.Handler {
				return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			},
		}
		router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=true", nil))
		if n := asked.Load(); n != 4 {
			t.Errorf("it was asked %d times who the client is", n)
		}
	}
}

// Z1, Z5: a space that gives access gets the client as a visitor, under names that are no others'. All others get one response, whether
// there is such a space or not.
func TestVisitorsReachWhatGivesThemAccess(t *testing.T) {
	router := &gateway.Router{
		Identify: func(r *http.Request) (*identity.Identity, error) {
			return &identity.Identity{Name: r.Header.Get("Authorization"), Groups: []string{"crew"}, Tenant: "lunar"}, nil
		},
		TenantOf: func(space string) string {
			if space == "nobody" {
				return ""
			}
			return space
		},
		GivesAccess: func(_ context.Context, space string, visitor *identity.Identity) bool {
			return space == "solar" && visitor.Name == "berth:tenant:lunar:bob" && visitor.Visitor
		},
		Lookup: func(space string) http.Handler {
			if space == "nobody" {
				return nil
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("User", identity.From(r.Context()).Name)
			})
		},
	}
	ask := func(user, path string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
		r.Header.Set("Authorization", user)
		router.ServeHTTP(w, r)
		return w
	}
	for path, want := range map[string]string{
		"/spaces/solar/api": "berth:tenant:lunar:bob", "/api/v1/tenants/solar/pods": "berth:tenant:lunar:bob", "/api": "bob", "/api/v1/tenants/lunar/pods": "bob",
	} {
		if w := ask("bob", path); w.Code != http.StatusOK || w.Header().Get("User") != want {
			t.Errorf("%s: %d as %q, want %q", path, w.Code, w.Header().Get("User"), want)
		}
	}
	refused := func(space string) string {
		return strings.ReplaceAll(ask("eve", "/spaces/"+space+"/api").Body.String(), space, "SPACE")
	}
	if first := refused("solar"); refused("mars") != first || refused("nobody") != first || !strings.Contains(first, "gives you no access") {
		t.Errorf("the responses differ: %s, %s, %s", first, refused("mars"), refused("nobody"))
	}
}

// A4: while it isn't known who a client is, its requests may be sent again, and those that run go on for a time.
func TestARequestLastsWhileItsClientCanNotBeChecked(t *testing.T) {
	unknown := apierrors.NewTooManyRequests("the webhook can't be asked now", 7)
	var asked atomic.Int32
	router := &gateway.Router{
		IdentifyAgain: time.Millisecond,
		Identify: func(*http.Request) (*identity.Identity, error) {
			switch n := asked.Add(1); {
			case n == 1:
				return &identity.Identity{Name: "alice", Tenant: "solar"}, nil
			case n < 6:
				return nil, unknown
			}
			return nil, nil
		},
		TenantOf: func(space string) string { return space },
		Lookup: func(string) http.Handler {
			return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		},
	}
	router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=true", nil))
	if n := asked.Load(); n != 6 {
		t.Errorf("it was asked %d times who the client is", n)
	}
	asked.Store(1)
	w := httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "7" || !strings.Contains(w.Body.String(), "can't be asked now") {
		t.Errorf("a new request gets %d, %v: %s", w.Code, w.Header(), w.Body)
	}
}

// A4: a client with a token that nobody knows any more gets 401, upon which it gets another token, though its path leads nowhere.
func TestUnknownTokensAreUnauthorized(t *testing.T) {
	for token, code := range map[string]int{"": http.StatusNotFound, "Bearer revoked": http.StatusUnauthorized} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
		r.Header.Set("Authorization", token)
		w := httptest.NewRecorder()
		(&gateway.Router{}).ServeHTTP(w, r)
		if w.Code != code {
			t.Errorf("with %q: %d", token, w.Code)
		}
	}
}

// T4: short paths of clients without a space lead to the default tenant, and let nobody in.
func TestStrangersAreSentToTheDefaultTenant(t *testing.T) {
	var verified string
	router := &gateway.Router{
		DefaultTenant: "everybody",
		Verify: func(space string, r *http.Request) (*http.Request, bool, error) {
			verified = space
			return r, false, nil
		},
	}
	w := httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil))
	if verified != "everybody" || w.Code != http.StatusUnauthorized {
		t.Errorf("a stranger is verified for %q, and gets %d", verified, w.Code)
	}
}
