// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/feed"
)

// copies is a process of which only copies matter here.
type copies struct {
	revision int64
	row      string
	openings []uint64 // that it was asked for
	rows     error    // what it answers a request for rows
}

func (*copies) Watch(context.Context, feed.Seen) (feed.State, error) { return feed.State{}, nil }

func (c *copies) Rows(context.Context, uint64, int64, int) ([]byte, error) { return nil, c.rows }

func (c *copies) Copy(_ context.Context, opening uint64, path string) (int64, string, error) {
	c.openings = append(c.openings, opening)
	return c.revision, c.row, os.WriteFile(path, []byte("a store"), 0o600)
}

// bases returns a follower of a store, its replica, and the stream that it has claimed there.
func bases(t *testing.T) (*follower, *snapshot.Replica, snapshot.Stream) {
	t.Helper()
	bucket, err := snapshot.Open("file://" + t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r, err := New(Config{
		Destination: func(string) *snapshot.Bucket { return bucket }, SpaceDir: func(space string) string { return filepath.Join(dir, space) },
		Scratch: filepath.Join(dir, "scratch"), Logger: klog.Background(),
	})
	if err != nil {
		t.Fatal(err)
	}
	stream := snapshot.Stream{Store: "0123456789abcdef", Seq: 1, Run: "01234567"}
	replica := bucket.Replica("bases")
	if err := replica.Claim(t.Context(), stream, snapshot.Begins); err != nil {
		t.Fatal(err)
	}
	return r.follower("bases", true), replica, stream
}

// S3: a stream of another process has one base, whatever that process says of it, and none that ends before the rows that it had before.
func TestHostileAStreamHasOneBase(t *testing.T) {
	f, replica, stream := bases(t)
	from := &copies{}
	f.store, f.copies = &remote{from: from, opening: 7, foreign: true}, t.Context()
	for i := range 4 { // the same revision, with other rows
		from.revision, from.row = 50, fmt.Sprintf("%016x", i)
		if _, _, err := f.copy(t.Context(), replica, &position{stream: stream, claim: stream}, 50); err != nil {
			t.Fatal(err)
		}
	}
	from.revision, from.row = 49, "00000000000000ff"
	if _, _, err := f.copy(t.Context(), replica, &position{stream: stream, claim: stream}, 50); !errors.Is(err, errProcess) {
		t.Errorf("an earlier copy: %v", err)
	}
	histories, err := replica.Histories(t.Context())
	if err != nil || len(histories) != 1 || len(histories[0].Bases) != 1 || histories[0].Base().Row != "0000000000000003" {
		t.Errorf("the replica has %+v (%v)", histories, err)
	}
	for _, opening := range from.openings {
		if opening != 7 {
			t.Errorf("the process was asked for a copy of opening %d", opening)
		}
	}
}

// D2: a process that has compacted rows since it last said how far had them: a store without the row isn't an older one.
func TestAStoreThatWasCompactedIsNotBehind(t *testing.T) {
	for said, want := range map[error]error{nil: errStoreBehind, kine.ErrRowsGone: nil} {
		f := &follower{store: &remote{from: &copies{rows: said}, limit: rate.NewLimiter(rate.Inf, 1), state: feed.State{Last: 9, Compacted: 3}}}
		if has, err := f.has(t.Context(), 7, "0000000000000000"); has || !errors.Is(err, want) {
			t.Errorf("if it answers %v: %t (%v)", said, has, err)
		}
	}
}

// D2: a base that isn't complete when the store closes is made when it is open again.
func TestABaseThatACloseEndsIsMadeLater(t *testing.T) {
	f, replica, stream := bases(t)
	for range 50 {
		f.store, f.position = &remote{from: &copies{}, opening: 7, foreign: true}, &position{stream: stream, claim: stream, hasBase: true, segments: 1 << 20}
		ctx, closes := context.WithCancel(t.Context())
		f.copies = ctx
		f.turn <- struct{}{}
		f.rebase(ctx, replica)
		if !f.position.copying {
			t.Fatal("no base is begun")
		}
		closes()
		f.leave()
		f.runs.Wait()
		if f.position.copying {
			t.Fatal("after the store was closed, a base is still being made")
		}
	}
}
