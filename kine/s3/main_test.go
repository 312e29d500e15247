// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/internal/testservers"
	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
)

func TestMain(m *testing.M) {
	if testservers.Serve() {
		return
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		testservers.Stop()
		os.Exit(code)
	}), goleak.IgnoreAnyFunction("github.com/berth-dev/berth/internal/testservers.(*Server).launch.func1"))
}

var demo = dbms.Owner{Space: "demo", ID: "1"}

// newDSN returns that of a prefix of its own.
func newDSN(t testing.TB) string {
	t.Helper()
	return testservers.S3(t).Database(t)
}

// openLog returns a log as another process has it, with a base each five records.
func openLog(t testing.TB, dsn string) *Log {
	t.Helper()
	l, err := New(mirror.Config{DSN: dsn}, demo)
	if err != nil {
		t.Fatal(err)
	}
	l.limits.records, l.bucket.pause = 5, time.Millisecond
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func takeOver(t testing.TB, l *Log) mirror.State {
	t.Helper()
	before, err := l.TakeOver(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return before
}

// model is the rows that a log should have, as a cache has them.
type model map[string]mirror.Row

func row(revision int64, key, value string) mirror.Row {
	return mirror.Row{Revision: revision, CreateRevision: revision, Key: key, Value: []byte(value)}
}

// with returns the model after changes.
func (m model) with(rows ...mirror.Row) model {
	next := maps.Clone(m)
	for _, r := range rows {
		if delete(next, r.Key); !r.Deleted {
			next[r.Key] = r
		}
	}
	return next
}

func (m model) pass(put func(mirror.Row) error) error {
	for _, r := range m {
		if err := put(r); err != nil {
			return err
		}
	}
	return nil
}

func (m model) texts() map[string]string {
	texts := map[string]string{}
	for key, r := range m {
		texts[key] = fmt.Sprint(r.Revision, " ", string(r.Value))
	}
	return texts
}

// texts returns the rows of a log.
func texts(t testing.TB, l *Log) (map[string]string, mirror.State) {
	t.Helper()
	found := model{}
	state, err := l.Rows(t.Context(), func(r mirror.Row) error {
		found = found.with(r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found.texts(), state
}

func add(t testing.TB, l *Log, rows ...mirror.Row) {
	t.Helper()
	if err := l.Append(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
}

// compact does what is due, with the rows of a cache. It fails if nothing is.
func compact(t testing.TB, l *Log, rows func(put func(mirror.Row) error) error) error {
	t.Helper()
	work := l.Compact()
	if work == nil {
		t.Fatal("nothing is due")
	}
	return work(t.Context(), rows)
}

// keys returns the keys of all objects.
func keys(t testing.TB, l *Log) (all []string) {
	t.Helper()
	objects, err := l.bucket.list(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		all = append(all, o.key)
	}
	return all
}

// verdict is what a proxy does with a request.
type verdict int

const (
	pass     verdict = iota
	drop             // it doesn't reach the storage
	dropBack         // its response doesn't reach the client
	accept           // the client gets 200, whatever the storage says
	reject           // the client gets 501
)

// proxy is between a log and the storage.
type proxy struct {
	mu     sync.Mutex
	decide func(*http.Request) verdict
}

func (p *proxy) set(decide func(*http.Request) verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = decide
}

// through returns a DSN that leads through a proxy.
func through(t testing.TB, dsn string) (string, *proxy) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{decide: func(*http.Request) verdict { return pass }}
	forward := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", u.Host },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		decide := p.decide
		p.mu.Unlock()
		switch decide(r) {
		case pass:
			forward.ServeHTTP(w, r)
			return
		case dropBack:
			forward.ServeHTTP(httptest.NewRecorder(), r)
		case accept:
			forward.ServeHTTP(httptest.NewRecorder(), r)
			w.WriteHeader(http.StatusOK)
			return
		case reject:
			w.WriteHeader(http.StatusNotImplemented)
			return
		case drop:
		}
		panic(http.ErrAbortHandler) // which closes the connection
	}))
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections) // those of the proxy
	return strings.Replace(dsn, u.Host, strings.TrimPrefix(server.URL, "http://"), 1), p
}

func writes(r *http.Request) bool { return r.Method == http.MethodPut || r.Method == http.MethodDelete }

func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}
