// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/berth-dev/berth/kine"
)

// Issue 3: a sleeping space wakes for its next TTL, which sleep doesn't lengthen.
func TestAStoreTellsItsNextExpiryAndKeepsItWhileClosed(t *testing.T) {
	onEach(t, testAStoreTellsItsNextExpiryAndKeepsItWhileClosed)
}

func testAStoreTellsItsNextExpiryAndKeepsItWhileClosed(t *testing.T, p place) {
	s := p.open(t)
	if _, ok, err := s.NextExpiry(t.Context()); ok || err != nil {
		t.Fatalf("a store without leases has a next expiry: %v", err)
	}
	late := putFor(t, s, "/registry/events/late", 7200)
	soon := putFor(t, s, "/registry/events/soon", 3600)
	brief := putFor(t, s, "/registry/events/brief", 60)
	if _, err := s.Client().Kubernetes.OptimisticPut(t.Context(), "/registry/events/brief", []byte("2"), brief,
		kubernetes.PutOptions{LeaseID: grant(t, s, 5000), GetOnFailure: true}); err != nil {
		t.Fatal(err)
	}
	want := time.Now().Add(time.Hour)
	for range 2 {
		next, ok, err := s.NextExpiry(t.Context())
		if err != nil || !ok || next.Before(want.Add(-time.Minute)) || next.After(want.Add(time.Minute)) {
			t.Errorf("next expiry is %s, %t, %v, want about %s: that of a version that was replaced doesn't count", next, ok, err, want)
		}
		closeStore(t, s)
		s = p.open(t)
	}
	remove(t, s, "/registry/events/soon", soon)
	if next, ok, err := s.NextExpiry(t.Context()); err != nil || !ok || next.Before(want.Add(10*time.Minute)) {
		t.Errorf("next expiry is %s, %t, %v, after the next key was deleted", next, ok, err)
	}
	remove(t, s, "/registry/events/late", late)
}

func TestWhatExpiredWhileAStoreWasClosedGoesWhenItOpens(t *testing.T) {
	onEach(t, testWhatExpiredWhileAStoreWasClosedGoesWhenItOpens)
}

func testWhatExpiredWhileAStoreWasClosedGoesWhenItOpens(t *testing.T, p place) {
	s := p.open(t)
	for _, key := range []string{"/registry/events/a", "/registry/events/b"} {
		putFor(t, s, key, 1)
	}
	putFor(t, s, "/registry/events/c", 3600)
	next, _, err := s.NextExpiry(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	until(t, func() bool { return time.Now().After(next) })
	s = p.open(t)
	until(t, func() bool {
		return value(t, s, "/registry/events/a") == "" && value(t, s, "/registry/events/b") == ""
	})
	if v := value(t, s, "/registry/events/c"); v != "1" {
		t.Errorf("c is %q", v)
	}
}

func grant(t *testing.T, s *kine.Store, ttl int64) clientv3.LeaseID {
	t.Helper()
	lease, err := s.Client().Grant(t.Context(), ttl)
	if err != nil {
		t.Fatal(err)
	}
	return lease.ID
}

// putFor makes a key that lives for some seconds.
func putFor(t *testing.T, s *kine.Store, key string, ttl int64) int64 {
	t.Helper()
	resp, err := s.Client().Kubernetes.OptimisticPut(t.Context(), key, []byte("1"), 0, kubernetes.PutOptions{LeaseID: grant(t, s, ttl)})
	if err != nil || !resp.Succeeded {
		t.Fatalf("put %s: %+v, %v", key, resp, err)
	}
	return resp.Revision
}
