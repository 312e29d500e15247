// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Z6, L3: a dedicated space whose process hangs delays what others have to know by nothing, and gets the latest of many changes once.
func TestAProcessThatHangsDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sends
		hang, sent := make(chan struct{}), map[string]*atomic.Int32{"hangs": {}, "fine": {}, "fails": {}}
		for i := range 100 {
			s.begin("hangs", func() {
				sent["hangs"].Add(1)
				<-hang
			})
			s.begin("fine", func() { sent["fine"].Add(1) })
			s.begin("fails", func() {
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
		s.wait()
		if n := sent["hangs"].Load(); n != 2 {
			t.Errorf("in the end, %d were sent, want the first and the last", n)
		}
		if n := sent["fails"].Load(); n != 100 {
			t.Errorf("after a panic, %d were sent", n)
		}
	})
}
