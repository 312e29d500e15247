// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berth-dev/berth/gateway"
)

// A host name leads to its space by short paths, if the TLS connection is for the same host.
func TestHostNamesLeadToTheirSpace(t *testing.T) {
	router := &gateway.Router{
		Domain:   "berth.example",
		Own:      func(*http.Request) string { return "issuer" },
		TenantOf: func(space string) string { return space },
		Lookup: func(space string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("At", space+r.URL.Path) })
		},
	}
	for reason, c := range map[string]struct {
		host, connection, path string
		code                   int
		at                     string
	}{
		"a space's":                   {"solar.berth.example", "solar.berth.example", "/api", 200, "solar/api"},
		"with a port":                 {"solar.berth.example:7443", "solar.berth.example", "/api", 200, "solar/api"},
		"in upper case, with a dot":   {"Solar.Berth.Example.", "solar.BERTH.example", "/api", 200, "solar/api"},
		"a full path":                 {"solar.berth.example", "solar.berth.example", "/api/v1/tenants/lunar/pods", 200, "lunar/api/v1/pods"},
		"a path of a space":           {"solar.berth.example", "solar.berth.example", "/spaces/lunar/api", 200, "lunar/api"},
		"the domain itself":           {"berth.example", "berth.example", "/api", 200, "issuer/api"},
		"another domain":              {"solar.example", "solar.example", "/api", 200, "issuer/api"},
		"an address":                  {"192.0.2.1:7443", "", "/api", 200, "issuer/api"},
		"an IPv6 address":             {"[2001:db8::1]:7443", "", "/api", 200, "issuer/api"},
		"below a space":               {"a.solar.berth.example", "a.solar.berth.example", "/api", 200, "issuer/api"},
		"no space":                    {".berth.example", ".berth.example", "/api", 200, "issuer/api"},
		"the end of a domain":         {"solarberth.example", "solarberth.example", "/api", 200, "issuer/api"},
		"a connection of another":     {"solar.berth.example", "lunar.berth.example", "/api", 421, ""},
		"a connection of the domain":  {"solar.berth.example", "berth.example", "/api", 421, ""},
		"a connection of nobody":      {"solar.berth.example", "", "/api", 421, ""},
		"a host of another":           {"other.example", "solar.berth.example", "/api", 421, ""},
		"an address, by a space's":    {"192.0.2.1", "solar.berth.example", "/spaces/lunar/api", 421, ""},
		"another one, by a full path": {"solar.berth.example", "lunar.berth.example", "/api/v1/tenants/lunar/pods", 421, ""},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.Host, r.TLS = c.host, &tls.ConnectionState{ServerName: c.connection}
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		if w.Code != c.code || w.Header().Get("At") != c.at || c.code == 421 && !strings.Contains(w.Body.String(), "use a connection for each host name") {
			t.Errorf("%s: %d at %q: %s; want %d at %q", reason, w.Code, w.Header().Get("At"), w.Body, c.code, c.at)
		}
	}
}
