// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Issue 3: an idle store costs next to nothing, and nobody can tell.
func TestAnIdleStoreLetsGoOfItsConnectionsAndWatchesGoOn(t *testing.T) {
	onEach(t, testAnIdleStoreLetsGoOfItsConnectionsAndWatchesGoOn)
}

func testAnIdleStoreLetsGoOfItsConnectionsAndWatchesGoOn(t *testing.T, p place) {
	s := p.open(t)
	watch := s.Client().Watch(t.Context(), "/registry/", clientv3.WithPrefix())
	rev := create(t, s, "/registry/a", "0")
	for i := range 5 {
		until(t, func() bool { return s.Release() == 0 }) // the watch may be reading
		if _, err := os.Stat(p.path + "-wal"); !os.IsNotExist(err) {
			t.Errorf("the log is there: %v", err)
		}
		if v := value(t, s, "/registry/a"); v != fmt.Sprint(i) {
			t.Errorf("value is %q in round %d", v, i)
		}
		if i%2 == 0 {
			s.Release() // by reads alone
		}
		rev = put(t, s, "/registry/a", fmt.Sprint(i+1), rev)
	}
	if n := len(take(t, watch, 6)); n != 6 {
		t.Errorf("%d events", n)
	}
}

// What a store costs while nothing happens in it.
func TestWatchesOfAnIdleStoreTakeNoGoroutines(t *testing.T) {
	s := openNew(t)
	s.Release()
	before := runtime.NumGoroutine()
	for i := range 100 {
		s.Client().Watch(t.Context(), fmt.Sprintf("/registry/%d/", i), clientv3.WithPrefix(), clientv3.WithProgressNotify())
	}
	if more := runtime.NumGoroutine() - before; more > 1 { // the runtime's own come and go
		t.Errorf("100 watches take %d goroutines", more)
	}
}
