// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/syncer/hostcache"
)

// L3: a policy that changes the statuses which a syncer writes had it write them again, a thousand times a second.
func TestHostilePoliciesDoNotKeepASyncerWriting(t *testing.T) {
	s := &Engine{Host: &hostcache.Host{}}
	if err := s.reach(&rest.Config{Host: "https://192.0.2.1"}); err != nil {
		t.Fatal(err)
	}
	limiter := s.toSpace.RateLimiter
	if limiter == nil || limiter.QPS() != requestRate {
		t.Fatal("the syncer's clients have no limit")
	}
	n, begun := 0, time.Now()
	for limiter.TryAccept() {
		n++
	}
	if most := requestsAtOnce + requestRate*(1+int(time.Since(begun).Seconds())); n < requestsAtOnce || n > most {
		t.Errorf("%d requests at once, want %d to %d", n, requestsAtOnce, most)
	}
}
