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

// L1: a watch that begins with all objects takes a turn of lists, but only as long as a watch does: then it waits for changes.
func TestHostileWatchesHoldATurnOfListsBriefly(t *testing.T) {
	for query, list := range map[string]bool{
		"watch=1": true, "watch=1&resourceVersion=0": true, "watch=1&resourceVersion=5": false,
		"watch=1&resourceVersion=5&sendInitialEvents=true": true,
	} {
		k := newClassifier().classify(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?"+query, nil))
		if k.list != list || k.lease > 100*time.Millisecond {
			t.Errorf("%s: a list %t, for %s, want %t, for at most 100ms", query, k.list, k.lease, list)
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
