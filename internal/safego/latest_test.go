// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package safego_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/berth-dev/berth/internal/safego"
)

// Z6, L3: work that hangs, such as to send a dedicated space what it enforces, delays none for others, and is done once for many changes.
func TestWorkThatHangsDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l safego.Latest
		hang, sent := make(chan struct{}), map[string]*atomic.Int32{"hangs": {}, "fine": {}, "fails": {}}
		for i := range 100 {
			l.Begin("hangs", "test", func() {
				sent["hangs"].Add(1)
				<-hang
			})
			l.Begin("fine", "test", func() { sent["fine"].Add(1) })
			l.Begin("fails", "test", func() {
				sent["fails"].Add(1)
				panic("no")
			})
			synctest.Wait()
			if n := sent["fine"].Load(); n != int32(i+1) {
				t.Fatalf("after %d changes, the other has %d", i+1, n)
			}
		}
		if n := sent["hangs"].Load(); n != 1 {
			t.Errorf("%d are sent at once", n)
		}
		close(hang)
		l.Wait()
		if n := sent["hangs"].Load(); n != 2 {
			t.Errorf("in the end, %d were sent, want the first and the last", n)
		}
		if n := sent["fails"].Load(); n != 100 {
			t.Errorf("after a panic, %d were sent", n)
		}
	})
}
