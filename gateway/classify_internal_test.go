// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"
)

// L1: a watch holds its turn only for as long as a request that is not a list: then it waits for changes.
func TestHostileWatchesHoldTheirTurnBriefly(t *testing.T) {
	for _, query := range []string{"watch=1", "watch=1&resourceVersion=5", "watch=1&resourceVersion=5&sendInitialEvents=true"} {
		k := newClassifier().classify(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?"+query, nil))
		if !k.watch || k.list || k.lease > 100*time.Millisecond {
			t.Errorf("%s: a watch %t, a list %t, for %s, want a watch and no list, for at most 100ms", query, k.watch, k.list, k.lease)
		}
	}
}

// L1: one space has a quarter of the lists, so that lists that hang leave turns to three others and more.
func TestHostileOneSpaceHasAQuarterOfTheLists(t *testing.T) {
	l := NewLimiter(LimiterConfig{})
	if total := l.lists.total; total < 4 || total < 2*runtime.GOMAXPROCS(0) || l.lists.share < 1 || l.lists.share > total/4 {
		t.Errorf("%d of %d", l.lists.share, total)
	}
}
