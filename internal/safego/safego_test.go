// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package safego_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

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

// A context lasts while a check holds, and no longer: neither if the check panics.
func TestAContextLastsWhileACheckHolds(t *testing.T) {
	for how, last := range map[string]func() bool{"it fails": func() bool { return false }, "it panics": func() bool { panic("out of range") }} {
		asked := 0 // by one goroutine after the other
		ctx := safego.While(t.Context(), time.Millisecond, "ask", func() (time.Duration, bool) {
			if asked++; asked < 3 {
				return time.Millisecond, true
			}
			return time.Millisecond, last()
		})
		<-ctx.Done()
		if asked != 3 || t.Context().Err() != nil {
			t.Errorf("until %s: it was asked %d times", how, asked)
		}
	}
	outer, end := context.WithCancel(t.Context())
	inner := safego.While(outer, time.Hour, "ask", func() (time.Duration, bool) { return time.Hour, true })
	end()
	<-inner.Done()
}
