// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/berth-dev/berth/access"
)

func TestSourceHoldsTheLatestStateAndReportsEachChange(t *testing.T) {
	var source access.Source
	state, changed := source.Watch()
	if state == nil || state.TenantName() != "" {
		t.Fatalf("the zero value holds %+v, want the empty state", state)
	}
	select {
	case <-changed:
		t.Fatal("a change was reported before one was set")
	default:
	}
	next := &access.State{Space: "blue", Tenant: "solar"}
	source.Set(next)
	<-changed
	if got := source.Get(); got != next {
		t.Errorf("it holds %+v, want %+v", got, next)
	}
	_, changed = source.Watch()
	source.Set(&access.State{Space: "blue", Tenant: "solar"})
	select {
	case <-changed:
		t.Error("a state that says the same is reported as a change")
	default:
	}
	source.Set(nil)
	<-changed
	if got := source.Get(); got == nil || got.Space != "" {
		t.Errorf("it holds %+v after Set(nil), want the empty state", got)
	}
}

func TestSourceThatIsNilHoldsTheEmptyState(t *testing.T) {
	var source *access.Source
	state, changed := source.Watch()
	if state == nil || changed != nil {
		t.Errorf("it holds %v and reports changes by %v, want the empty state and no channel", state, changed)
	}
}

func TestSourceLosesNoChangeToConcurrentWatchers(t *testing.T) {
	source, last := &access.Source{}, &access.State{Space: "last"}
	var watchers sync.WaitGroup
	for range 8 {
		watchers.Go(func() {
			for state, changed := source.Watch(); state != last; state, changed = source.Watch() {
				<-changed
			}
		})
	}
	for i := range 100 {
		source.Set(&access.State{Space: strconv.Itoa(i)})
	}
	source.Set(last)
	watchers.Wait()
}
