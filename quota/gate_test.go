// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/quota"
)

func newClock() *steppedClock {
	return &steppedClock{FakePassiveClock: testingclock.NewFakePassiveClock(time.Unix(0, 0))}
}

// L3: a tenant that asks for too much again and again, also for a little less each time, doesn't have each request asked about.
func TestHostileRequestsAreAskedAboutSeldom(t *testing.T) {
	clock, asks := newClock(), 0
	gate := quota.NewGate(func(context.Context, quota.Amounts, quota.Amounts) error {
		asks++
		return &quota.Exceeded{Tenant: "a", Limited: amounts(1, "1")}
	}, clock)
	for i := range 1000 {
		if _, err := gate.Admit(t.Context(), fmt.Sprint(i), amounts(1, "2")); !quota.IsExceeded(err) {
			t.Fatal(err)
		}
	}
	if asks != 1 {
		t.Errorf("1000 equal requests at one moment were asked about %d times", asks)
	}
	begin := clock.Now()
	for i := range 1000 {
		_, _ = gate.Admit(t.Context(), fmt.Sprint(i), amounts(1, fmt.Sprintf("%dm", 1999-i)))
	}
	if least := time.Duration(asks-1) * 40 * time.Millisecond; clock.Since(begin) < least {
		t.Errorf("%d requests were asked about in %s, want at least %s", asks-1, clock.Since(begin), least)
	}
}

// Q2: what was admitted counts until it is seen, and not after it wasn't written.
func TestWhatIsAdmittedCountsOnce(t *testing.T) {
	clock := newClock()
	gate := quota.NewGate(func(context.Context, quota.Amounts, quota.Amounts) error {
		return &quota.Exceeded{Tenant: "a", Limited: amounts(2, "2")}
	}, clock)
	gate.Raise(amounts(2, "2"))
	admit := func(key string, want bool) *quota.Admitted {
		t.Helper()
		admitted, err := gate.Admit(t.Context(), key, amounts(1, "1"))
		if (err == nil) != want {
			t.Fatalf("%s: admitted %v, want %v", key, err == nil, want)
		}
		return admitted
	}
	first, second := admit("first", true), admit("second", true)
	admit("third", false)
	second.Done(false)
	gate.Freed()
	admit("third", true).Done(true)
	gate.Saw("third", nil, amounts(1, "1"))
	first.Done(true)
	admit("fourth", false)
	gate.Saw("third", amounts(1, "1"), nil)
	admit("fourth", true)
	if used := gate.Lower(amounts(0, "0")); used.Pods().Value() != 2 {
		t.Errorf("it uses %v", used)
	}
	clock.SetTime(clock.Now().Add(time.Hour)) // "first" and "fourth" were never seen
	if used := gate.Lower(nil); !used.Pods().IsZero() {
		t.Errorf("after an hour it uses %v", used)
	}
	gate.Close()
	if gate.Lower(nil) != nil {
		t.Error("a space that has stopped says what it uses")
	}
}

// L3: what the process of a dedicated space says is read without parsing numbers that take hours.
func TestHostileAmountsAreDropped(t *testing.T) {
	said := `{"id": 1, "more": {"a": "1e2000000000", "b": "1e-2000000000", "c": "-1", "d": "` + strings.Repeat("9", 1000) + `", "e": "x", "f": "0", "g": "1.5Gi", "` +
		strings.Repeat("n", 1000) + `": "1", "h": "1e3"}}`
	var wanted quota.Wanted
	if err := json.Unmarshal([]byte(said), &wanted); err != nil {
		t.Fatal(err)
	}
	got := wanted.More.Amounts()
	if g, h := got["g"], got["h"]; len(got) != 2 || g.String() != "1536Mi" || h.Value() != 1000 {
		t.Errorf("got %v", got)
	}
	many := quota.Untrusted{}
	for i := range 10_000 {
		many[fmt.Sprint(i)] = "1"
	}
	if n := len(many.Amounts()); n > 200 {
		t.Errorf("%d resources are read", n)
	}
	amounts := quota.Amounts{corev1.ResourceMemory: resource.MustParse("1536Mi"), corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceStorage: *resource.NewQuantity(1<<60, resource.BinarySI)}
	if back := quota.Said(amounts).Amounts(); len(back) != 3 || !within(back, amounts) || !within(amounts, back) {
		t.Errorf("%v comes back as %v", amounts, back)
	}
}

// Q3: what the host counts and a space that runs doesn't have is known, also of resources that the space doesn't use.
func TestDriftIsWhatTheHostCountsMore(t *testing.T) {
	gate := quota.NewGate(nil, newClock())
	counted := make(chan struct{})
	gate.CountedAfter(counted)
	onHost := quota.Amounts{"pods": resource.MustParse("3"), "requests.cpu": resource.MustParse("1"), "requests.example.com/gpu": resource.MustParse("1"), "services": resource.MustParse("5")}
	if drift := gate.Drift(onHost); drift != nil {
		t.Errorf("before the objects of the space are counted, the drift is %v", drift)
	}
	close(counted)
	gate.Saw("a", nil, quota.Amounts{"pods": resource.MustParse("1"), "requests.cpu": resource.MustParse("1"), "requests.example.com/gpu": resource.MustParse("2")})
	drift := gate.Drift(onHost)
	if pods, gpus := drift["pods"], drift["requests.example.com/gpu"]; len(drift) != 2 || pods.Value() != 2 || gpus.Value() != -1 {
		t.Errorf("the drift is %v", drift)
	}
	if drift := gate.Drift(quota.Amounts{"pods": resource.MustParse("1")}); len(drift) != 0 {
		t.Errorf("the drift of what agrees is %v", drift)
	}
	gate.Close()
	if drift := gate.Drift(onHost); drift != nil {
		t.Errorf("once the space has stopped, the drift is %v", drift)
	}
}
