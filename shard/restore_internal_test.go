// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/shard/credentials"
)

// sleeping is a shard of a space that sleeps, without a host.
func sleeping(t *testing.T, p *place) *Shard {
	t.Helper()
	s := &Shard{config: Config{Dir: t.TempDir()}.complete(), places: map[string]*place{p.name: p}, held: map[string]bool{}}
	var err error
	if s.credentials, err = credentials.New(s.dir, s.config.SpacesMax, s.config.Clock); err != nil {
		t.Fatal(err)
	}
	return s
}

// D2: who asks for a space that is being restored is told to ask again, not that
// there is none; and it is as before once that has ended.
func TestASpaceThatIsHeldIsNotGone(t *testing.T) {
	s := sleeping(t, &place{name: "demo"})
	router := &gateway.Router{Lookup: s.Handler}
	ask := func(space string) *http.Response {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, gateway.Path(space)+"/api", nil))
		return w.Result()
	}
	check := func(when, space string, want int) {
		t.Helper()
		got := ask(space)
		defer got.Body.Close()
		if again := got.Header.Get("Retry-After"); got.StatusCode != want || (again != "") != (want == http.StatusServiceUnavailable) {
			t.Errorf("%s: %s answers %s, Retry-After %q; want %d", when, space, got.Status, again, want)
		}
	}
	release := s.Hold("demo")
	check("while it has its place yet", "demo", http.StatusUnauthorized)
	if err := s.StopSpace(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	check("while it has no place", "demo", http.StatusServiceUnavailable)
	check("while it has no place", "other", http.StatusNotFound)
	if err := s.Add("demo"); err != nil {
		t.Fatal(err)
	}
	check("with its place again", "demo", http.StatusUnauthorized)
	release()
	if err := s.StopSpace(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	check("when it is gone", "demo", http.StatusNotFound)
}

// What went wrong when a space fell asleep says nothing of its stop later on.
func TestAStopIsNotBlamedForAnEarlierOne(t *testing.T) {
	s := sleeping(t, &place{name: "demo", stopErr: errors.New("of when it fell asleep")})
	if err := s.StopSpace(t.Context(), "demo"); err != nil {
		t.Error(err)
	}
	if names := s.Names(); len(names) > 0 {
		t.Errorf("there are still %q", names)
	}
}
