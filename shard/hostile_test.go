// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/shard"
)

// S19: without a credential of the space, an answer is the same whether the space is awake, asleep or broken, is held for a
// restore, or does not exist.
func TestHostileStrangersLearnNoStates(t *testing.T) {
	s := newEnv(t)
	admin := s.admin(t, startSpace(t, s.Shard, "known"), "known")
	startSpace(t, s.Shard, "broken")
	foreign := s.admin(t, startSpace(t, s.Shard, "other"), "other")
	s.falls(t, "broken")
	if err := os.WriteFile(filepath.Join(s.config.Dir, "broken", "store.db"), []byte("not a store"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Wake(t.Context(), "broken"); err == nil {
		t.Fatal("it is not broken")
	}
	defer s.Hold("held")()
	server := httptest.NewUnstartedServer(&gateway.Router{Lookup: s.Handler, Verify: s.Verify})
	server.TLS = s.server.TLS.Clone()
	server.StartTLS()
	t.Cleanup(server.Close)
	at := func(c *rest.Config) func(path string) string {
		c = rest.CopyConfig(c)
		c.Host = server.URL
		transport, err := rest.TransportFor(c)
		if err != nil {
			t.Fatal(err)
		}
		return func(path string) string {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			resp.Header.Del("Date")
			var text strings.Builder
			if err := resp.Write(&text); err != nil {
				t.Fatal(err)
			}
			return text.String()
		}
	}
	check := func(state string) {
		t.Helper()
		for who, c := range map[string]*rest.Config{"nobody": rest.AnonymousClientConfig(admin), "another space's admin": foreign} {
			ask := at(c)
			want := ask("/spaces/nobody/api")
			if !strings.Contains(want, " 401 ") {
				t.Errorf("%s gets %s", who, want)
			}
			for _, space := range []string{"known", "broken", "held"} {
				for _, path := range []string{"/api", "/healthz", "/readyz", "/livez", "/version", ""} {
					if got := ask("/spaces/" + space + path); got != want {
						t.Errorf("%s, while %s: %s%s answers\n%s\nwant\n%s", who, state, space, path, got, want)
					}
				}
			}
		}
	}
	check("it is awake")
	s.falls(t, "known")
	check("it is asleep")
	s.is(t, "known", shard.ReasonAsleep, metav1.ConditionTrue)
	if got := at(admin)("/spaces/known/readyz"); !strings.Contains(got, " 200 ") {
		t.Errorf("its own admin gets %s", got)
	}
	if got := at(admin)("/spaces/known/version"); !strings.Contains(got, " 200 ") {
		t.Errorf("its own admin gets %s", got)
	}
}
