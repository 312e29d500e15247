// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/berth-dev/berth/bounds"
)

// L3: a watch keeps the header of its request until it ends. Long ones are accounted, and a space that has many gets no more.
func TestHostileLongHeadersAreAccounted(t *testing.T) {
	account := bounds.NewAccount(bounds.Limits{bounds.MemoryBytes: 100 << 10})
	waiting, end := make(chan int64), make(chan struct{})
	handler := AccountMemory(account, func(*http.Request, *apirequest.RequestInfo) bool { return true },
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			waiting <- account.Used(bounds.MemoryBytes)
			<-end
		}))
	ask := func(length int) *httptest.ResponseRecorder {
		work := &bounds.Work{}
		work.Begin()
		defer work.Done()
		r := httptest.NewRequestWithContext(bounds.WithWork(t.Context(), work), http.MethodGet, "/api/v1/pods?watch=true", http.NoBody)
		r.Header.Set("X-Long", strings.Repeat("x", length))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	ended := make(chan struct{})
	for _, c := range []struct{ length, used int64 }{{1 << 10, 0}, {60 << 10, 60 << 10}} {
		go func() {
			ask(int(c.length))
			ended <- struct{}{}
		}()
		if used := <-waiting; used < c.used || used > c.used+1<<10 {
			t.Errorf("with a header of %d bytes, %d are accounted", c.length, used)
		}
	}
	if w := ask(60 << 10); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "memory-bytes") {
		t.Errorf("another one gets %d: %s", w.Code, w.Body)
	}
	close(end)
	<-ended
	<-ended
	if used := account.Used(bounds.MemoryBytes); used != 0 {
		t.Errorf("%d bytes are accounted with nothing under way", used)
	}
}
