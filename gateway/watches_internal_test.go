// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/bounds"
)

// A watch has its turn until its answer begins, however long it then is.
func TestAWatchHasItsTurnUntilItsAnswerBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(LimiterConfig{})
		watch := func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan struct{})
		go func() {
			defer close(served)
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/pods?watch=1&resourceVersion=5", http.NoBody)
			l.limit("a", "", nil, http.HandlerFunc(watch)).ServeHTTP(flushRecorder{httptest.NewRecorder()}, r)
		}()
		synctest.Wait()
		if used := l.others.used; used != 0 {
			t.Errorf("a watch whose answer has begun has %d units", used)
		}
		cancel()
		<-served
	})
}

// L1, L3: what watches begin with is read in turn: one part of a tenant after the other, although the responses have begun. Other tenants
// don't wait for that.
func TestHostileWatchesReadWhatTheyBeginWithInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(LimiterConfig{})
		var reading, tooMany, read atomic.Int32
		want := int32(l.lists.share) //nolint:gosec // a few
		watch := func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			end, err := bounds.WorkOf(r.Context()).Turn(r.Context())
			if err != nil {
				return
			}
			if now := reading.Add(1); now > want+1 { // one of the other space
				tooMany.Store(now)
			}
			<-time.After(listLease / 10)
			reading.Add(-1)
			read.Add(1)
			end()
		}
		begin := func(space string) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?watch=1", http.NoBody)
			l.limit(space, "", nil, http.HandlerFunc(watch)).ServeHTTP(flushRecorder{httptest.NewRecorder()}, r)
		}
		var flood sync.WaitGroup
		for range 50 {
			flood.Go(func() { begin("a") })
		}
		synctest.Wait()
		began := time.Now()
		begin("b")
		if took := time.Since(began); took > listLease/10 {
			t.Errorf("another space waits for %s, want %s at most", took, listLease/10)
		}
		flood.Wait()
		if tooMany.Load() > 0 || read.Load() != 51 {
			t.Errorf("%d read at once, and %d in all; want %d at once of each space, and 51", tooMany.Load(), read.Load(), want)
		}
	})
}

// L1, L3: what it takes to decode and encode what a watch sends counts for its tenant, though only to send it takes a turn.
func TestHostileBytesOfWatchesAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(LimiterConfig{})
		delayedBy(l.others.pace, func() time.Duration { return 10 * time.Millisecond })
		const sent = 10 << 20
		watch := func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write(make([]byte, sent))
		}
		for range 10 { // until the pace has fallen
			for i := range 10 * runtime.GOMAXPROCS(0) {
				l.others.pace.busy(fmt.Sprint(ofSpace, "quiet-", i))
			}
			<-time.After(paceEvery)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?watch=1", http.NoBody)
		l.limit("loud", "", nil, http.HandlerFunc(watch)).ServeHTTP(flushRecorder{httptest.NewRecorder()}, r)
		work := func(space string) time.Duration { return l.others.pace.tenants[ofSpace+space].work }
		if got := work("loud"); got < sent*watchByte {
			t.Errorf("%s of work is charged, want %s or more", got, sent*watchByte)
		}
		if got := work("quiet-0"); got > 0 {
			t.Errorf("%s of work is charged to another space", got)
		}
	})
}

// L1: a list whose client doesn't read keeps its turn for a moment only: many tenants with such clients would have all turns.
func TestHostileUnreadListsKeepNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(LimiterConfig{})
		unread, served := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(served)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", http.NoBody)
			list := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("items")) }
			l.limit("a", "", nil, http.HandlerFunc(list)).ServeHTTP(stuckRecorder{flushRecorder{httptest.NewRecorder()}, unread}, r)
		}()
		<-time.After(2 * unreadLease)
		l.lists.mu.Lock()
		used := l.lists.used
		l.lists.mu.Unlock()
		if used != 0 {
			t.Errorf("after %s it still has its turn", 2*unreadLease)
		}
		close(unread)
		<-served
	})
}

// stuckRecorder is a writer whose client doesn't read.
type stuckRecorder struct {
	flushRecorder

	read <-chan struct{}
}

func (r stuckRecorder) Write(part []byte) (int, error) {
	<-r.read
	return r.flushRecorder.Write(part)
}

// flushRecorder is a writer as servers have them.
type flushRecorder struct{ *httptest.ResponseRecorder }

func (flushRecorder) CloseNotify() <-chan bool { return nil }
