// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcesyncs

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"k8s.io/klog/v2"
)

// C6: a change for all spaces restarts few of them at once, whatever becomes of some.
func TestFewSpacesTakeUpAChangeAtOnce(t *testing.T) {
	t.Parallel()
	c := NewChanges(klog.Background())
	const spaces = 10
	for i := range spaces {
		c.Add(fmt.Sprint(i))
		c.Add(fmt.Sprint(i)) // which makes no difference
	}
	begun, goOn, done := make(chan struct{}, 3*spaces), make(chan struct{}), make(chan string, 3*spaces)
	var active, tries atomic.Int32
	stop := c.Run(func(_ context.Context, space string) error {
		defer active.Add(-1)
		if n := active.Add(1); n > changesAtOnce {
			t.Errorf("%s is number %d at once", space, n)
		}
		begun <- struct{}{}
		<-goOn
		if space == "0" && tries.Add(1) == 1 {
			return errHost
		}
		if space == "1" {
			panic("oh")
		}
		done <- space
		return nil
	})
	for range changesAtOnce {
		<-begun
	}
	close(goOn)
	got := map[string]int{}
	for range spaces - 1 { // all but 1
		got[<-done]++
	}
	stop()
	if len(got) != spaces-1 || got["1"] > 0 || tries.Load() != 2 {
		t.Errorf("these are done: %v, the first one after %d tries", got, tries.Load())
	}
}
