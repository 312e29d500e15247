// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/replicator"
)

// D2: while a base is made, the store keeps the rows that come after it. Otherwise, the base would be followed by another one.
func TestAStoreKeepsItsRowsDuringABase(t *testing.T) {
	s3 := newStorage(t)
	p := newProcess(t, t.TempDir(), s3.bucket(t), nil)
	held, release := s3.holdBase(t)
	s := p.open(t, "based")
	<-held
	last := s.Last()
	for i := range 3 {
		s.put(key(i), "during the base")
	}
	if at := p.Of("based").Compactable(); at > last {
		t.Errorf("rows up to %d may be compacted, and the base has those up to %d", at, last)
	}
	release()
	p.upToDate(t, "based")
}

// D2, D3: a store that is nearly full, so that it is compacted before the bucket has the rows, isn't copied without a pause. Until the next
// copy, the replica has what it had before.
func TestAStoreIsNotCopiedAgainAndAgain(t *testing.T) {
	const space = "full"
	s3 := newStorage(t)
	bucket := s3.bucket(t)
	p := newProcess(t, t.TempDir(), bucket, func(c *replicator.Config) { c.BasePause = time.Hour })
	s := p.open(t, space)
	s.put(key(0), "value")
	p.upToDate(t, space)
	before := streams(t, bucket, space)
	s3.down.Store(true)
	s.press()
	s3.down.Store(false)
	eventually(t, func() error {
		state, _ := p.State(space)
		if state.Reason != replicator.Behind || state.Rows == 0 || state.Revision == 0 || state.Since.IsZero() || !claimed(t, bucket, space) {
			return fmt.Errorf("the state is %+v", state)
		}
		return nil
	})
	if diff := cmp.Diff(before, streams(t, bucket, space)); diff != "" {
		t.Errorf("another base was made: %s", diff)
	}
	if have, err := restored(t, bucket, space+"/latest"); err != nil || have[key(0)] != "value" {
		t.Errorf("the replica has %v (%v)", have, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	p.open(t, space)
	p.upToDate(t, space)
}

// S3: a store closes at once although a base of it is made, which is made again when the store is opened.
func TestABaseHoldsUpNoClose(t *testing.T) {
	s3 := newStorage(t)
	bucket := s3.bucket(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	held, release := s3.holdBase(t)
	s := p.open(t, "closing")
	s.put(key(0), "value")
	<-held
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 2*time.Second { // less than what a close waits for the last upload
		t.Errorf("the close took %s", took)
	}
	if state, _ := p.State("closing"); state.Reason != replicator.Behind {
		t.Errorf("the state is %+v", state)
	}
	release()
	p.open(t, "closing")
	p.upToDate(t, "closing")
	if have, err := restored(t, bucket, "closing/latest"); err != nil || have[key(0)] != "value" {
		t.Errorf("the replica has %v (%v)", have, err)
	}
}

// D2: what bases replace is removed while other bases are made.
func TestRemovalsHoldUpNoBase(t *testing.T) {
	s3 := newStorage(t)
	bucket := s3.bucket(t)
	p := newProcess(t, t.TempDir(), bucket, func(c *replicator.Config) { c.MaxSegments = 2 })
	removing, release := make(chan string, 100), make(chan struct{})
	hold := func(r *http.Request) {
		if r.Method == http.MethodDelete {
			removing <- r.URL.Path
			<-release
		}
	}
	s3.before.Store(&hold)
	end := sync.OnceFunc(func() { close(release) })
	defer end()
	for _, space := range []string{"one", "two", "three"} {
		s := p.open(t, space)
		p.upToDate(t, space)
		for i := 0; len(removing) == 0; i++ {
			s.put(key(i%10), "value")
			p.upToDate(t, space)
			if i > 1000 {
				t.Fatalf("space %s gets no other base", space)
			}
		}
		<-removing
	}
	p.open(t, "last")
	p.upToDate(t, "last")
	end()
}

// D2: rows lead to a new base by their size, and not by that of their segments: a restore has to append them.
func TestRowsThatCompressWellLeadToABase(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	s := p.open(t, "zeros")
	p.upToDate(t, "zeros")
	first := streams(t, bucket, "zeros")
	for i := range 10 {
		s.put(key(0), fmt.Sprint(i, strings.Repeat("0", 1<<20)))
		p.upToDate(t, "zeros")
	}
	eventually(t, func() error {
		if now := streams(t, bucket, "zeros"); len(now) != 1 || now[0] == first[0] {
			return fmt.Errorf("the bases are %q", now)
		}
		return nil
	})
}

// D2: a store that can't be copied isn't the fault of the bucket.
func TestAStoreThatCannotBeCopiedIsBehind(t *testing.T) {
	scratch := filepath.Join(t.TempDir(), "scratch")
	p := newProcess(t, t.TempDir(), directory(t), func(c *replicator.Config) { c.Scratch = scratch })
	if err := errors.Join(os.Remove(scratch), os.WriteFile(scratch, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	p.open(t, "uncopied")
	eventually(t, func() error {
		if state, _ := p.State("uncopied"); state.Reason != replicator.Behind || !strings.Contains(state.Err, "copy the store") {
			return fmt.Errorf("the state is %+v", state)
		}
		return nil
	})
	if err := os.Remove(scratch); err != nil {
		t.Fatal(err)
	}
	p.upToDate(t, "uncopied")
}

// D2: a store that can't be copied again, for example because the volume is full, doesn't fill the bucket with rows, and its state says why.
func TestAStoreThatCannotBeCopiedAgainFallsBehind(t *testing.T) {
	scratch := filepath.Join(t.TempDir(), "scratch")
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, func(c *replicator.Config) { c.Scratch, c.MaxSegments = scratch, 1 })
	s := p.open(t, "copied-once")
	p.upToDate(t, "copied-once")
	if err := errors.Join(os.Remove(scratch), os.WriteFile(scratch, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	writes := 0
	eventually(t, func() error {
		writes++
		s.put(key(writes), "x")
		if state, _ := p.State("copied-once"); state.Reason != replicator.Behind || !strings.Contains(state.Err, "copy the store") {
			return fmt.Errorf("the state is %+v", state)
		}
		return nil
	})
	histories, err := bucket.Replica("copied-once").Histories(t.Context())
	if err != nil || len(histories) != 1 || len(histories[0].Segments) < 10 || len(histories[0].Segments) > 12 {
		t.Errorf("after %d writes, the replica has %+v (%v)", writes, histories, err)
	}
}

// D2: a space that writes faster than its segments are uploaded gets new bases, too.
func TestABusySpaceGetsABase(t *testing.T) {
	s3 := newStorage(t)
	bucket := s3.bucket(t)
	p := newProcess(t, t.TempDir(), bucket, func(c *replicator.Config) { c.MaxSegments = 5 })
	s := p.open(t, "faster")
	p.upToDate(t, "faster")
	first := streams(t, bucket, "faster")
	write, wrote, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	during := func(r *http.Request) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "-rows-") {
			for _, c := range []chan struct{}{write, wrote} { // there is a write during each upload
				select {
				case c <- struct{}{}:
				case <-done:
				}
			}
		}
	}
	s3.before.Store(&during)
	s.put(key(0), "begins")
	for i := range 100 {
		<-write
		s.put(key(i%50), fmt.Sprint(i))
		<-wrote
		if i%10 != 9 {
			continue
		}
		if now := streams(t, bucket, "faster"); len(now) > 0 && now[len(now)-1] != first[0] {
			break
		} else if i == 99 {
			t.Errorf("after 100 segments, the bases are %q", now)
		}
	}
	close(done)
	p.upToDate(t, "faster")
	eventually(t, func() error { // a base that is complete now removes what a restore reads
		have, err := restored(t, bucket, "faster/latest")
		if diff := cmp.Diff(s.list(), have); err != nil || diff != "" {
			return fmt.Errorf("%w %s", err, diff)
		}
		return nil
	})
}

// claimed reports whether a process has claimed a stream that has no base yet.
func claimed(t *testing.T, bucket *snapshot.Bucket, space string) bool {
	t.Helper()
	histories, err := bucket.Replica(space).Histories(t.Context())
	return err == nil && len(histories) > 0 && histories[len(histories)-1].Claim == snapshot.Begins && histories[len(histories)-1].Base() == nil
}
