// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/identity"
)

// rejections counts what the gateway says it rejected.
type rejections struct {
	mu  sync.Mutex
	all map[string]int
}

func (r *rejections) Begin(string, *http.Request) (moved func(int64, int64), end func(int)) {
	return func(int64, int64) {}, func(int) {}
}

func (r *rejections) Rejected(space, limit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]int{}
	}
	r.all[space+" "+limit]++
}

// limitedServer serves spaces a and b with limits; requests to /hang wait until they are let go, and say that they do.
type limitedServer struct {
	url      string
	rejected rejections
	hanging  chan struct{}
	letGo    chan struct{}
	// users are three that don't count as one, which others do by chance.
	users [3]string
}

func serveLimited(t *testing.T, limits bounds.Limits) *limitedServer {
	t.Helper()
	return serveLimiter(t, gateway.LimiterConfig{Limits: func(string) bounds.Limits { return limits }})
}

// serveLimiter serves all spaces. A client is who the header User says, of the tenant in the header Tenant, if it has these headers.
func serveLimiter(t *testing.T, config gateway.LimiterConfig) *limitedServer {
	t.Helper()
	limiter := gateway.NewLimiter(config)
	s := &limitedServer{hanging: make(chan struct{}, 1000), letGo: make(chan struct{}), users: limiter.DistinctUsers()}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("hang") {
			s.hanging <- struct{}{}
			select {
			case <-s.letGo:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "ok")
	})
	router := &gateway.Router{
		Lookup:  func(string) http.Handler { return handler },
		Limiter: limiter, Meter: &s.rejected, TenantOf: config.TenantOf, UserOf: func(r *http.Request) user.Info { return &user.DefaultInfo{Name: r.URL.Query().Get("as")} },
		Identify: func(r *http.Request) (*identity.Identity, error) {
			if r.Header.Get("User") == "" {
				return nil, nil
			}
			return &identity.Identity{Name: r.Header.Get("User"), Tenant: r.Header.Get("Tenant"), Proof: identity.Certificate}, nil
		},
	}
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// awaitHanging waits until a request hangs.
func (s *limitedServer) awaitHanging(t *testing.T) {
	t.Helper()
	select {
	case <-s.hanging:
	case <-time.After(testTimeout):
		t.Fatal("no request hangs")
	}
}

func (s *limitedServer) ask(t *testing.T, method, path string) (int, http.Header, metav1.Status) {
	t.Helper()
	return s.askAs(t, "", "", method, path)
}

func (s *limitedServer) askAs(t *testing.T, user, tenant, method, path string) (int, http.Header, metav1.Status) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("User", user)
	req.Header.Set("Tenant", tenant)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, nil, metav1.Status{}
	}
	defer resp.Body.Close()
	var status metav1.Status
	if resp.StatusCode != http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
			t.Errorf("%s: %v", resp.Status, err)
		}
	}
	return resp.StatusCode, resp.Header, status
}

// L1: requests of a space in flight are bounded, by what they do; one beyond gets an error that names the limit, and
// the other spaces, and the space's other requests, are served.
func TestHostileFloodsAreRejectedAndOthersServed(t *testing.T) {
	const (
		read  = "/api/v1/namespaces/default/configmaps/x"
		watch = "/api/v1/configmaps?watch=true"
		logs  = "/api/v1/namespaces/default/pods/x/log"
	)
	for name, test := range map[string]struct {
		limit        bounds.Quantity
		method, path string
		other        string
	}{
		"writes":  {bounds.RequestsWriting, http.MethodPost, "/api/v1/namespaces/default/configmaps?hang", read},
		"reads":   {bounds.RequestsReading, http.MethodGet, read + "?hang", watch},
		"watches": {bounds.RequestsLongRunning, http.MethodGet, watch + "&resourceVersion=7&hang", read},
		"logs":    {bounds.RequestsLongRunning, http.MethodGet, logs + "?hang&follow=true", read},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveLimited(t, bounds.Limits{test.limit: 3})
			var flood sync.WaitGroup
			for range 3 {
				flood.Go(func() {
					if code, _, status := s.ask(t, test.method, "/spaces/a"+test.path); code != http.StatusOK {
						t.Errorf("within the limit: %d %s", code, status.Message)
					}
				})
				s.awaitHanging(t)
			}
			code, header, status := s.ask(t, test.method, "/spaces/a"+test.path)
			if code != http.StatusTooManyRequests || header.Get("Retry-After") == "" || status.Details == nil ||
				status.Reason != metav1.StatusReasonTooManyRequests || !strings.Contains(status.Message, test.limit.String()) {
				t.Errorf("beyond the limit: %d, Retry-After %q, %+v", code, header.Get("Retry-After"), status)
			}
			if code, _, status := s.ask(t, http.MethodGet, "/spaces/a"+test.other); code != http.StatusOK {
				t.Errorf("another kind of request: %d %s", code, status.Message)
			}
			if code, _, status := s.ask(t, http.MethodGet, "/spaces/b"+read); code != http.StatusOK {
				t.Errorf("another space: %d %s", code, status.Message)
			}
			close(s.letGo)
			flood.Wait()
			if code, _, status := s.ask(t, test.method, "/spaces/a"+test.path); code != http.StatusOK {
				t.Errorf("afterwards: %d %s", code, status.Message)
			}
			s.rejected.mu.Lock()
			defer s.rejected.mu.Unlock()
			if n := s.rejected.all["a "+test.limit.String()]; n != 1 || len(s.rejected.all) != 1 {
				t.Errorf("rejections counted: %v", s.rejected.all)
			}
		})
	}
}

// L1: the requests to all spaces of a tenant are bounded together, one of its users leaves some to the others, and neither a client of
// another tenant nor an admin of the platform uses them up, or is held up by them.
func TestHostileTenantsAndUsersLeaveOthersTheirs(t *testing.T) {
	s := serveLimiter(t, gateway.LimiterConfig{
		TenantOf: func(space string) string { return strings.Split(space, "-")[0] },
		TenantLimits: func(string) bounds.Limits {
			return bounds.TenantLimits(bounds.Limits{bounds.RequestsWriting: 8})
		},
	})
	const write = "/api/v1/namespaces/default/configmaps"
	asFlood, asOther, asThird := write+"?as="+s.users[0], write+"?as="+s.users[1], write+"?as="+s.users[2]
	var flood sync.WaitGroup
	hang := func(path string) {
		t.Helper()
		flood.Go(func() {
			if code, _, status := s.ask(t, http.MethodPost, path+"&hang"); code != http.StatusOK {
				t.Errorf("%s, within the limit: %d %s", path, code, status.Message)
			}
		})
		s.awaitHanging(t)
	}
	refused := func(path, why string) {
		t.Helper()
		code, header, status := s.ask(t, http.MethodPost, path)
		if code != http.StatusTooManyRequests || header.Get("Retry-After") == "" || !strings.Contains(status.Message, why) {
			t.Errorf("%s: %d, Retry-After %q, %s", path, code, header.Get("Retry-After"), status.Message)
		}
	}
	for i := range 7 {
		hang([]string{"/spaces/solar", "/spaces/solar-b"}[i%2] + asFlood)
	}
	refused("/spaces/solar-b"+asFlood, "the user's limit requests-writing is reached: 1 requests asked, 7 of 7 in use")
	hang("/spaces/solar" + asOther)
	refused("/spaces/solar"+asThird, "the tenant's limit requests-writing is reached: 1 requests asked, 8 of 8 in use")
	if code, _, status := s.ask(t, http.MethodPost, "/spaces/lunar"+write); code != http.StatusOK {
		t.Errorf("another tenant: %d %s", code, status.Message)
	}
	if code, _, status := s.askAs(t, "admin", "system", http.MethodPost, "/spaces/solar"+write); code != http.StatusOK {
		t.Errorf("an admin of the platform: %d %s", code, status.Message)
	}
	close(s.letGo)
	flood.Wait()
	if code, _, status := s.ask(t, http.MethodPost, "/spaces/solar"+asThird); code != http.StatusOK {
		t.Errorf("afterwards: %d %s", code, status.Message)
	}
}

// L1: requests of a space beyond its rate are refused, and another's are not.
func TestHostileRatesAreRejected(t *testing.T) {
	s := serveLimited(t, bounds.Limits{bounds.RequestRate: 1})
	var rejected int
	for range 5 { // two may come at once, and one a second
		code, _, status := s.ask(t, http.MethodGet, "/spaces/a/api")
		if code == http.StatusTooManyRequests && strings.Contains(status.Message, "request-rate") {
			rejected++
		}
	}
	if rejected == 0 {
		t.Error("no request was rejected")
	}
	if code, _, status := s.ask(t, http.MethodGet, "/spaces/b/api"); code != http.StatusOK {
		t.Errorf("another space: %d %s", code, status.Message)
	}
}

// L1: the rate of a tenant holds over all its spaces, and one user leaves others some of it, however much of his is refused.
func TestHostileRatesOfATenantAreBounded(t *testing.T) {
	s := serveLimiter(t, gateway.LimiterConfig{
		TenantOf:     func(space string) string { return strings.Split(space, "-")[0] },
		TenantLimits: func(string) bounds.Limits { return bounds.TenantLimits(bounds.Limits{bounds.RequestRate: 16}) },
	})
	var rejected int
	for i := range 200 { // 28 of one user may come at once, and 14 a second
		code, _, status := s.ask(t, http.MethodGet, []string{"/spaces/solar", "/spaces/solar-b"}[i%2]+"/api?as="+s.users[0])
		if code == http.StatusTooManyRequests && strings.Contains(status.Message, "the user's limit request-rate is reached") {
			rejected++
		}
	}
	if rejected < 50 {
		t.Errorf("%d requests were rejected", rejected)
	}
	if code, _, status := s.ask(t, http.MethodGet, "/spaces/solar/api?as="+s.users[1]); code != http.StatusOK {
		t.Errorf("another user: %d %s", code, status.Message)
	}
	if code, _, status := s.ask(t, http.MethodGet, "/spaces/lunar/api"); code != http.StatusOK {
		t.Errorf("another tenant: %d %s", code, status.Message)
	}
}

// L1, Z1: what a user asks of other tenants' spaces counts toward the limits of his own tenant alone, whether there are such spaces or not.
func TestHostileRefusedRequestsAreLimited(t *testing.T) {
	s := serveLimiter(t, gateway.LimiterConfig{
		TenantOf:     func(space string) string { return space },
		TenantLimits: func(string) bounds.Limits { return bounds.TenantLimits(bounds.Limits{bounds.RequestRate: 8}) },
	})
	codes := map[int]int{}
	for i := range 100 {
		code, _, _ := s.askAs(t, "bob", "solar", http.MethodGet, []string{"/spaces/lunar/api", "/spaces/nobody/api"}[i%2])
		codes[code]++
	}
	if codes[http.StatusForbidden] == 0 || codes[http.StatusTooManyRequests] < 30 || len(codes) != 2 {
		t.Errorf("the codes are %v", codes)
	}
	if code, _, status := s.askAs(t, "eve", "lunar", http.MethodGet, "/spaces/lunar/api"); code != http.StatusOK {
		t.Errorf("a user of the other tenant: %d %s", code, status.Message)
	}
	if len(s.rejected.all) > 0 {
		t.Errorf("rejections are counted for %v", s.rejected.all)
	}
}

// L1: lists that nobody reads, or that take long, hold up neither other spaces nor, for long, their own.
func TestHostileListsHoldUpNobody(t *testing.T) {
	s := serveLimited(t, nil)
	var flood sync.WaitGroup
	for range 50 {
		flood.Go(func() { s.ask(t, http.MethodGet, "/spaces/a/api/v1/configmaps?hang") })
	}
	s.awaitHanging(t)
	for _, path := range []string{"/spaces/b/api/v1/configmaps", "/spaces/a/api/v1/namespaces/default/configmaps/x"} {
		if code, _, status := s.ask(t, http.MethodGet, path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, status.Message)
		}
	}
	s.awaitHanging(t) // another one's turn comes, though the first still hangs
	close(s.letGo)
	go func() { // what is let go no more hangs
		for range s.hanging {
		}
	}()
	flood.Wait()
	close(s.hanging)
}
