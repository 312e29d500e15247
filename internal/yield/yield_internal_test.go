// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package yield

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWorkYieldsNotTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Point
		yields := func() bool {
			before := p.last.Load()
			p.Pass(nil)
			return before != 0 && p.last.Load() != before
		}
		if yields() {
			t.Error("work that has just begun yields")
		}
		<-time.After(every / 2)
		if yields() {
			t.Error("work that has gone on for half of the time yields")
		}
		<-time.After(every / 2)
		if !yields() {
			t.Error("work that has gone on for all of the time does not yield")
		}
		if yields() {
			t.Error("it yields twice")
		}
		p.last.Add(int64(time.Hour))
		if !yields() {
			t.Error("it does not yield after the clock was set back")
		}
	})
}
