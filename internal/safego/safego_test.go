// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package safego_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/internal/safego"
)

// S18: a panic in a goroutine ends what it was about, and says so to whoever has to know.
func TestAPanicEndsWhatWasBeingDone(t *testing.T) {
	var wait sync.WaitGroup
	var ended error
	safego.Go(&wait, "read a frame", func() { panic("out of range") }, func(err error) { ended = err })
	safego.Go(&wait, "read another", func() { panic("nobody is told") }, nil)
	safego.Go(&wait, "read a third", func() {}, func(err error) { t.Error(err) })
	wait.Wait()
	if ended == nil || !strings.Contains(ended.Error(), "read a frame: panic: out of range") {
		t.Errorf("it ended by %v", ended)
	}
	done := make(chan struct{})
	safego.AfterFunc(0, "wake", func() {
		defer close(done)
		panic("too late")
	})
	<-done
	want := errors.New("an error")
	if err := safego.Call("ask", func() error { return want }); !errors.Is(err, want) {
		t.Errorf("an error became %v", err)
	}
}
