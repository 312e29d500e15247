// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcesyncs

import (
	"context"
	"fmt"
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
	begun, goOn, done := make(chan string, 3*spaces), make(chan struct{}), make(chan string, 3*spaces)
	failed := make(chan struct{}, 1)
	failed <- struct{}{}
	stop := c.Run(func(_ context.Context, space string) error {
		begun <- space
		<-goOn
		if space == "1" {
			panic("oh")
		}
		if space == "0" {
			select {
			case <-failed:
				return errHost
			default:
			}
		}
		done <- space
		return nil
	})
	for range changesAtOnce {
		<-begun
	}
	got := map[string]bool{}
	for range spaces - 2 { // all but 0, which fails once, and 1
		select {
		case space := <-begun:
			t.Fatalf("%s is the third one at once", space)
		default:
		}
		goOn <- struct{}{}
		for range 3 { // 0 and 1 are not done
			select {
			case space := <-done:
				got[space] = true
			case <-begun:
				continue
			}
			break
		}
	}
	close(goOn)
	for len(got) < spaces-1 {
		got[<-done] = true
	}
	stop()
	if got["1"] || !got["0"] {
		t.Errorf("these are done: %v", got)
	}
}
