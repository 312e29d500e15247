// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/berth-dev/berth/snapshot"
)

// waking are spaces one of which does not wake, as those that may have ended the process before, until it is let.
type waking struct {
	*spaces
	slow string
	let  atomic.Bool
}

func (w *waking) Wake(ctx context.Context, name string) error {
	if name == w.slow && !w.let.Load() {
		<-ctx.Done()
		return fmt.Errorf("wake space %s: %w", name, context.Cause(ctx))
	}
	return w.spaces.Wake(ctx, name)
}

// D2, T8: a space that does not wake for its snapshot keeps no other from its own. Its attempt fails, and says why; it
// is tried again in the next round.
func TestHostileASpaceThatDoesNotWakeHoldsUpNoOthersSnapshots(t *testing.T) {
	s := &waking{spaces: newSpaces(t, "a-suspect", "other"), slow: "a-suspect"}
	s.sleep(t, "a-suspect")
	wal := s.path("a-suspect") + "-wal" // it did not stop cleanly
	if err := os.WriteFile(wal, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	results, logged := make(chan seen, 100), &logLines{}
	k, err := snapshot.NewKeeper(snapshot.Config{
		Dir: s.dir, Scratch: filepath.Join(t.TempDir(), "scratch"), Spaces: s, Clock: s.clock, WakeTimeout: 2 * time.Second,
		Bucket: open(t, "file://"+t.TempDir()), Every: time.Hour, Keep: 3, Observe: func(space, result string) { results <- seen{space, result} },
		Logger: funcr.New(logged.add, funcr.Options{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	start(t, k)
	if got := next(t, results, 2); fmt.Sprint(got) != "map[a-suspect:failed other:taken]" {
		t.Errorf("at first: %v", got)
	}
	if text := logged.String(); !strings.Contains(text, "a-suspect") || !strings.Contains(text, "not awake within 2s") {
		t.Errorf("logged is %q", text)
	}
	s.let.Store(true)
	if got := round(t, s.spaces, results, 2); got["a-suspect"] != snapshot.Taken {
		t.Errorf("in the next round: %v", got)
	}
}

// S3, D2: a dedicated space whose process sends its store slowly, or never, delays no snapshot but its own, on schedule
// or asked for; and it is asked for one store at a time.
func TestHostileASlowProcessHoldsUpNoOthersSnapshots(t *testing.T) {
	s := &stuck{spaces: newSpaces(t, "a-slow", "b", "c"), slow: "a-slow", entered: make(chan struct{}, 9), release: make(chan struct{})}
	results := make(chan seen, 100)
	bucket := open(t, "file://"+t.TempDir())
	k, err := snapshot.NewKeeper(snapshot.Config{
		Dir: s.dir, Scratch: filepath.Join(t.TempDir(), "scratch"), Spaces: s, Clock: s.clock, Elsewhere: func(space string) bool { return space != "c" },
		Bucket: bucket, Every: time.Hour, Keep: 3, Observe: func(space, result string) { results <- seen{space, result} },
	})
	if err != nil {
		t.Fatal(err)
	}
	start(t, k)
	if got := fmt.Sprint(next(t, results, 2)); got != "map[b:taken c:taken]" {
		t.Errorf("at first: %s", got)
	}
	<-s.entered
	for _, space := range []string{"b", "c"} {
		s.put(t, space, "/registry/configmaps/default/more", "x")
	}
	if got := fmt.Sprint(round(t, s.spaces, results, 2)); got != "map[b:taken c:taken]" {
		t.Errorf("in the next round: %s", got)
	}
	if _, err := k.Take(t.Context(), "b", bucket); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Take(ctx, "a-slow", bucket); !errors.Is(err, context.Canceled) || len(s.entered) > 0 {
		t.Errorf("a second snapshot of the slow space: %v, and %d more stores are asked for", err, len(s.entered))
	}
	close(s.release)
	if got := fmt.Sprint(next(t, results, 1)); got != "map[a-slow:taken]" {
		t.Errorf("in the end: %s", got)
	}
}

// stuck are spaces one of which does not send its store until it is let.
type stuck struct {
	*spaces
	slow    string
	entered chan struct{}
	release chan struct{}
}

func (s *stuck) Snapshot(ctx context.Context, space, path string) (bool, error) {
	if space == s.slow {
		s.entered <- struct{}{}
		select {
		case <-s.release:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return s.spaces.Snapshot(ctx, space, path)
}
