// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/metrics"
)

// spaces are those that there are.
type spaces struct {
	mu  sync.Mutex
	all []metrics.Space
}

func (s *spaces) set(all ...metrics.Space) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = all
}

func (s *spaces) list() []metrics.Space {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

func (s *spaces) names() (names []string) {
	for _, one := range s.list() {
		names = append(names, one.Name)
	}
	return names
}

// full is a space of which everything is known.
func full(name string) metrics.Space {
	return metrics.Space{
		Name: name, State: metrics.Awake, Ready: true, HostObjects: map[string]int{"pods": 3},
		Store: &metrics.Store{File: 4096, Log: 512, Live: 2048, Limit: 1 << 20, Revision: 7}, Sync: &metrics.Sync{Done: 5},
		Limits: bounds.NewAccount(nil).Usage(), QuotaDrift: corev1.ResourceList{"pods": resource.MustParse("-1")},
		Tenant: "acme", Use: map[string]float64{"cpu": 1}, ReplicationLag: ptr.To(0.5),
	}
}

func newMetrics(s *spaces) *metrics.Metrics {
	return metrics.New(metrics.Config{
		Version: "v0.1.0", Kubernetes: "v1.37.1", Names: s.names, Spaces: s.list,
		Cached:       func() (own, other int) { return 7, 3 },
		Certificates: func() map[string]time.Time { return map[string]time.Time{"serving": time.Unix(1800000000, 0)} },
	})
}

func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func expect(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("there is no %q in\n%s", line, own(text))
		}
	}
}

// own are the lines that are Berth's.
func own(text string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "berth_") }), "\n")
}

// X4: what a space is asked is counted by kind of request and class of answer,
// through the gateway as it serves.
func TestRequestsAreCountedBySpace(t *testing.T) {
	s := &spaces{}
	s.set(metrics.Space{Name: "a", State: metrics.Awake}, metrics.Space{Name: "b", State: metrics.Awake})
	m := newMetrics(s)
	watching := make(chan struct{})
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
		case "/cut":
			panic(http.ErrAbortHandler)
		case "/watch":
			w.(http.Flusher).Flush()
			close(watching)
			<-r.Context().Done()
		case "/exec":
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			_ = conn.Close()
		}
	})
	server := httptest.NewServer(&gateway.Router{Meter: m, Lookup: func(space string) http.Handler {
		if space == "a" || space == "b" {
			return api
		}
		return nil
	}})
	defer server.Close()
	ask := func(method, path string, header ...string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(header) > 0 {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", header[0])
		}
		if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
			_ = resp.Body.Close()
		}
	}
	ask("GET", "/spaces/a/api/v1/pods")
	ask("GET", "/spaces/a/api/v1/pods?watch=false")
	ask("HEAD", "/spaces/a/missing")
	ask("POST", "/spaces/a/api/v1/pods")
	ask("PUT", "/spaces/a/api/v1/pods/x")
	ask("PATCH", "/spaces/a/api/v1/pods/x")
	ask("DELETE", "/spaces/b/api/v1/pods/x")
	ask("BREW", "/spaces/a/pot?verb=hostile")
	ask("POST", "/spaces/a/cut") // a GET would be tried again
	ask("POST", "/spaces/a/exec", "x")
	ask("GET", "/spaces/nobody/api")
	ask("GET", "/elsewhere")
	resp, err := http.Get(server.URL + "/spaces/b/watch?watch=true&limit=5")
	if err != nil {
		t.Fatal(err)
	}
	<-watching
	// A client has its answer before the handler has ended.
	text := scrape(t, m)
	for end := time.Now().Add(10 * time.Second); strings.Contains(text, `in_flight{space="a"`) && time.Now().Before(end); text = scrape(t, m) {
		<-time.After(time.Millisecond)
	}
	expect(t, text,
		`berth_space_requests_total{code="2xx",space="a",verb="read"} 2`,
		`berth_space_requests_total{code="4xx",space="a",verb="read"} 1`,
		`berth_space_requests_total{code="2xx",space="a",verb="write"} 3`,
		`berth_space_requests_total{code="2xx",space="b",verb="delete"} 1`,
		`berth_space_requests_total{code="2xx",space="a",verb="other"} 1`,
		`berth_space_requests_total{code="aborted",space="a",verb="write"} 1`,
		`berth_space_requests_total{code="1xx",space="a",verb="connect"} 1`,
		`berth_space_requests_in_flight{space="b",verb="watch"} 1`,
		`berth_request_duration_seconds_count{verb="write"} 4`,
	)
	if strings.Contains(text, "nobody") || strings.Contains(text, "hostile") || strings.Contains(text, "BREW") {
		t.Errorf("strangers make up labels:\n%s", own(text))
	}
	_ = resp.Body.Close()
}

// Whatever tenants do, and however many spaces come and go, there is no more to
// show than the spaces that there are have.
func TestNothingIsLeftOfASpaceThatIsDeleted(t *testing.T) {
	s := &spaces{}
	m := newMetrics(s)
	var most int
	for i := range 200 {
		name := fmt.Sprintf("space-%d", i)
		s.set(full(name), full("steady"))
		for _, method := range []string{"GET", "POST", fmt.Sprintf("M%d", i)} {
			moved, end := m.Begin(name, httptest.NewRequest(method, "/"+name, nil))
			moved(1, 1)
			end(100 + i*7)
		}
		m.Rejected(name, "request-rate")
		m.Woken(name, time.Second, nil)
		m.Woken(name, time.Second, errors.New("no"))
		m.Snapshot(name, metrics.SnapshotTaken)
		_, late := m.Begin(name, httptest.NewRequest(http.MethodGet, "/", nil))
		text := scrape(t, m)
		if !strings.Contains(text, `berth_space_requests_in_flight{space="`+name+`",verb="read"} 1`) {
			t.Fatalf("%s is not shown:\n%s", name, own(text))
		}
		s.set(full("steady"))
		late(200) // ends when its space is gone
		m.Woken(name, time.Second, nil)
		if text := scrape(t, m); strings.Contains(text, name) {
			t.Fatalf("%s is shown after its end:\n%s", name, own(text))
		}
		if n := strings.Count(own(text), "\n"); i == 0 {
			most = n + 20 // buckets of durations are filled once
		} else if n > most {
			t.Fatalf("%d lines, at first %d", n, most-20)
		}
	}
	expect(t, scrape(t, m), `berth_space_ready{space="steady"} 1`, `berth_spaces{state="awake"} 1`, `berth_spaces{state="failed"} 0`)
}

// A sleeping space shows what can be known without waking it.
func TestASleepingSpaceShowsItsFile(t *testing.T) {
	s := &spaces{}
	s.set(metrics.Space{Name: "quiet", State: metrics.Asleep, Ready: true, Store: &metrics.Store{File: 8192}})
	text := scrape(t, newMetrics(s))
	expect(t, text, `berth_space_store_bytes{part="file",space="quiet"} 8192`, `berth_space_awake{space="quiet"} 0`, `berth_space_ready{space="quiet"} 1`)
	if strings.Contains(text, "berth_space_store_revision{") {
		t.Error("it has no revision without its store")
	}
}

// A tenant decides which of the resources of its quota it uses. That many series it has not.
func TestSeriesOfDriftAreBounded(t *testing.T) {
	s, one := &spaces{}, full("a")
	for i := range 100 {
		one.QuotaDrift[corev1.ResourceName(fmt.Sprintf("requests.example.com/%d", i))] = resource.MustParse("2")
	}
	s.set(one)
	if count := strings.Count(scrape(t, newMetrics(s)), "\nberth_space_quota_drift{"); count != 20 {
		t.Errorf("%d series", count)
	}
}

// docs/reference/metrics.md describes every metric, no other, and as it is.
func TestTheDocumentationListsWhatThereIs(t *testing.T) {
	s := &spaces{}
	s.set(full("a"))
	m := newMetrics(s)
	moved, end := m.Begin("a", httptest.NewRequest(http.MethodGet, "/", nil))
	moved(1, 1)
	end(200)
	m.Begin("a", httptest.NewRequest(http.MethodGet, "/", nil))
	m.Rejected("a", "requests-reading")
	m.Woken("a", time.Second, nil)
	m.Snapshot("a", metrics.SnapshotTaken)
	text := scrape(t, m)
	expect(t, text, `berth_host_cached_objects{of="own"} 7`, `berth_host_cached_objects{of="other"} 3`)

	there := map[string]string{}
	for scanner := bufio.NewScanner(strings.NewReader(text)); scanner.Scan(); {
		if rest, ok := strings.CutPrefix(scanner.Text(), "# HELP berth_"); ok {
			name, help, _ := strings.Cut(rest, " ")
			there["berth_"+name] = help
		}
	}
	doc, err := os.ReadFile("../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	own, _, _ := strings.Cut(string(doc), "\n## Metrics of the operator\n")
	described := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(berth_\\w+)` \\| .* \\| (.*) \\|$").FindAllStringSubmatch(own, -1) {
		described[row[1]] = true
		if help, ok := there[row[1]]; !ok {
			t.Errorf("docs/reference/metrics.md describes %s, which is not there", row[1])
		} else if !strings.HasPrefix(row[2]+".", strings.TrimSuffix(help, ".")) {
			t.Errorf("docs/reference/metrics.md says of %s\n%s\nit says itself\n%s", row[1], row[2], help)
		}
	}
	for name := range there {
		if !described[name] {
			t.Errorf("docs/reference/metrics.md lacks %s", name)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "berth_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
