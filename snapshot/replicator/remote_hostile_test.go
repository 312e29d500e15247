// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/kine/sqlite"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/feed"
	"github.com/berth-dev/berth/snapshot/replicator"
	"github.com/berth-dev/berth/snapshot/segment"
)

// liar is a process that somebody has taken over.
type liar struct {
	state  func(seen feed.State) feed.State
	rows   func(ctx context.Context, after int64) ([]byte, error)
	copies func(ctx context.Context, path string) (int64, string, error)
	asked  atomic.Int64 // for rows and copies
}

func (l *liar) Watch(ctx context.Context, seen feed.Seen) (feed.State, error) {
	if l.state == nil {
		return feed.State{Opening: 1, Last: seen.Last + 1000}, ctx.Err()
	}
	return l.state(seen.State), ctx.Err()
}

func (l *liar) Rows(ctx context.Context, _ uint64, after int64, _ int) ([]byte, error) {
	l.asked.Add(1)
	return l.rows(ctx, after)
}

func (l *liar) Copy(ctx context.Context, _ uint64, path string) (int64, string, error) {
	l.asked.Add(1)
	if l.copies == nil {
		return 1, strings.Repeat("0", 16), os.WriteFile(path, []byte("not a store"), 0o600)
	}
	return l.copies(ctx, path)
}

func pageFrom(t *testing.T, first int64, ids ...int64) []byte {
	t.Helper()
	codec, err := segment.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	rows := []sqlite.Row{{ID: first, Name: "/a"}}
	for _, id := range ids {
		rows = append(rows, sqlite.Row{ID: id, Name: "/a", Value: []byte("b")})
	}
	object, err := codec.Encode(segment.Header{}, rows)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func untilGivenUp(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// D2, S3: whatever the processes of dedicated spaces send, the replica of another space is up to date within seconds, and what isn't a history goes to
// no bucket. There are more of them than may upload at once.
func TestHostileAProcessDelaysNoOther(t *testing.T) {
	sound := func(after int64) []byte { return pageFrom(t, after+1) }
	type lies struct { // as those of a liar
		state  func(seen feed.State) feed.State
		rows   func(ctx context.Context, after int64) ([]byte, error)
		copies func(ctx context.Context, path string) (int64, string, error)
	}
	for name, test := range map[string]struct {
		lies
		most int // how many segments each may upload; -1 for any number
	}{
		"rows that never arrive": {lies{rows: func(ctx context.Context, _ int64) ([]byte, error) { return nil, untilGivenUp(ctx) }}, 0},
		"copies that never arrive": {lies{copies: func(ctx context.Context, _ string) (int64, string, error) {
			return 0, "", untilGivenUp(ctx)
		}}, 0},
		"a gap in a segment":       {lies{rows: func(_ context.Context, after int64) ([]byte, error) { return pageFrom(t, after+1, after+3), nil }}, 0},
		"rows of another revision": {lies{rows: func(_ context.Context, after int64) ([]byte, error) { return pageFrom(t, after+2), nil }}, 0},
		"no rows":                  {lies{rows: func(context.Context, int64) ([]byte, error) { return nil, nil }}, 0},
		"not a segment":            {lies{rows: func(context.Context, int64) ([]byte, error) { return []byte("rows"), nil }}, 0},
		"rows that are gone":       {lies{rows: func(context.Context, int64) ([]byte, error) { return nil, kine.ErrRowsGone }}, 0},
		"a copy without a row": {lies{copies: func(_ context.Context, path string) (int64, string, error) {
			return 5, "../../../etc", os.WriteFile(path, nil, 0o600)
		}}, 0},
		"a copy of no revision": {lies{copies: func(_ context.Context, path string) (int64, string, error) {
			return math.MaxInt64, strings.Repeat("0", 16), os.WriteFile(path, nil, 0o600)
		}}, 0},
		"rows without end": {lies{rows: func(_ context.Context, after int64) ([]byte, error) { return sound(after), nil }}, -1},
		"openings without end": {lies{rows: func(_ context.Context, after int64) ([]byte, error) { return sound(after), nil }, state: func(seen feed.State) feed.State {
			return feed.State{Opening: 1 + uint64(seen.Last/8), Closing: seen.Last%16 == 7, Last: seen.Last + 1}
		}}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bucket := directory(t)
			p := newProcess(t, t.TempDir(), bucket, func(c *replicator.Config) { c.Delay = 100 * time.Millisecond })
			if test.rows == nil {
				test.rows = func(context.Context, int64) ([]byte, error) { return nil, nil }
			}
			var liars []*liar
			for i := range 50 {
				l := &liar{state: test.state, rows: test.rows, copies: test.copies}
				liars = append(liars, l)
				p.follow(t, fmt.Sprintf("liar-%d", i), l)
			}
			eventually(t, func() error {
				asked := 0
				for _, l := range liars {
					asked += int(min(l.asked.Load(), 1))
				}
				if asked < 4 {
					return fmt.Errorf("%d processes were asked yet", asked)
				}
				return nil
			})
			s := p.open(t, "honest")
			for i := range 10 {
				s.put(key(i), "value")
			}
			p.upToDate(t, "honest")
			if have, err := restored(t, bucket, "honest/latest"); err != nil || len(have) != 10 {
				t.Errorf("the replica has %d objects (%v)", len(have), err)
			}
			histories, err := bucket.Replica("liar-0").Histories(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(histories) > 3 {
				t.Errorf("the replica has %d streams", len(histories))
			}
			for _, h := range histories {
				if test.most >= 0 && len(h.Segments) > test.most {
					t.Errorf("stream %s has %d segments", h.Stream, len(h.Segments))
				}
			}
		})
	}
}

// S3: a process that sends rows, and no copy of its store, doesn't fill the bucket.
func TestHostileRowsWithoutACopyEnd(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, func(c *replicator.Config) { c.MaxSegments = 1 })
	var copies atomic.Int64
	l := &liar{rows: func(_ context.Context, after int64) ([]byte, error) { return pageFrom(t, after+1), nil }}
	l.copies = func(_ context.Context, path string) (int64, string, error) {
		if copies.Add(1) > 1 {
			return 0, "", errors.New("no")
		}
		return 1, strings.Repeat("0", 16), os.WriteFile(path, []byte("not a store"), 0o600)
	}
	p.follow(t, "full", l)
	eventually(t, func() error {
		if state, _ := p.State("full"); state.Reason != replicator.Behind || !strings.Contains(state.Err, "a copy of its store") {
			return fmt.Errorf("the state is %+v", state)
		}
		return nil
	})
	histories, err := bucket.Replica("full").Histories(t.Context())
	if err != nil || len(histories) != 1 || len(histories[0].Segments) > 12 {
		t.Errorf("the replica has %+v (%v)", histories, err)
	}
}

// S3: a process that takes no time to send rows takes no more than its share, and what it says of itself moves no number of others.
func TestHostileRowsAreTakenAtALimitedRate(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	codec, err := segment.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	value := make([]byte, 1<<20)
	l := &liar{rows: func(_ context.Context, after int64) ([]byte, error) {
		return codec.Encode(segment.Header{}, []sqlite.Row{{ID: after + 1, Name: "/a", Value: value}})
	}}
	p.follow(t, "fast", l)
	began := time.Now()
	eventually(t, func() error {
		if n := l.asked.Load(); n < 30 {
			return fmt.Errorf("%d pages", n)
		}
		return nil
	})
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("29 MiB of rows were taken within %s", took)
	}
	if _, err := restored(t, bucket, "fast/latest"); !errors.Is(err, snapshot.ErrElsewhere) {
		t.Errorf("the replica: %v", err)
	}
}

// S3: a process that answers each request for a copy, but never with one that has the rows it has sent, fills no bucket, and no copy replaces a
// later one.
func TestHostileEarlierCopiesReplaceNothing(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, func(c *replicator.Config) { c.MaxSegments = 1 })
	l := &liar{rows: func(_ context.Context, after int64) ([]byte, error) { return pageFrom(t, after+1), nil }}
	p.follow(t, "early", l) // each copy has revision 1
	eventually(t, func() error {
		if state, _ := p.State("early"); state.Reason != replicator.Behind || !strings.Contains(state.Err, "a copy of its store") {
			return fmt.Errorf("the state is %+v", state)
		}
		return nil
	})
	histories, err := bucket.Replica("early").Histories(t.Context())
	if err != nil || len(histories) != 1 || len(histories[0].Segments) > 12 || len(histories[0].Bases) != 1 {
		t.Errorf("the replica has %+v (%v)", histories, err)
	}
}

// S3: a process that says something else each time has no status written each time.
func TestHostileAProcessThatSleepsHasFewStatusesWritten(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	o, _ := newElsewhere(t, t.TempDir(), "fickle")
	s := o.open(t, "fickle")
	end := p.follow(t, "fickle", o)
	p.upToDate(t, "fickle")
	last := s.Last()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	end()
	var asked, changes atomic.Int64
	p = newProcess(t, p.dir, bucket, func(c *replicator.Config) { c.Changed = func(string) { changes.Add(1) } })
	p.follow(t, "fickle", &liar{state: func(feed.State) feed.State { return feed.State{Last: last + asked.Add(1)%2} }})
	eventually(t, func() error {
		if n := asked.Load(); n < 500 {
			return fmt.Errorf("it was asked %d times", n)
		}
		return nil
	})
	if n := changes.Load(); n == 0 || n > 20 {
		t.Errorf("of %d answers, %d change the status", asked.Load(), n)
	}
}
