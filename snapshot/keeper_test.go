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
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/snapshot"
)

// seen is what happened to a space in a round.
type seen struct{ space, result string }

// round steps the clock to the next round and returns what happened in it.
func round(t *testing.T, s *spaces, results <-chan seen, n int) map[string]string {
	t.Helper()
	waiting := func() error {
		if !s.clock.HasWaiters() {
			return errors.New("the keeper does not wait for its next round")
		}
		return nil
	}
	eventually(t, waiting)
	s.clock.Step(time.Hour)
	got := next(t, results, n)
	eventually(t, waiting)
	return got
}

// next waits for n results.
func next(t *testing.T, results <-chan seen, n int) map[string]string {
	t.Helper()
	got := map[string]string{}
	for range n {
		select {
		case r := <-results:
			got[r.space] = r.result
		case <-time.After(testTimeout):
			t.Fatalf("only %v happened", got)
		}
	}
	return got
}

// start runs a keeper until the test ends.
func start(t *testing.T, k *snapshot.Keeper) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

const testTimeout = 30 * time.Second

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(testTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// D2: snapshots are taken as scheduled, of what has changed, and as many kept
// as was asked for; a restart goes on with the schedule.
func TestSnapshotsAreTakenOnSchedule(t *testing.T) {
	for kind, url := range buckets(t) {
		t.Run(kind, func(t *testing.T) {
			s := newSpaces(t, "busy", "quiet")
			s.clock.SetTime(time.Now().Add(time.Hour)) // after what is written here
			s.sleep(t, "quiet")
			bucket := open(t, url)
			results := make(chan seen, 100)
			observe := func(space, result string) { results <- seen{space, result} }
			run := func() (stop func()) {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				k := keeper(t, s, bucket, observe)
				go func() { defer close(done); k.Run(ctx) }()
				return func() { cancel(); <-done }
			}
			stop := run()
			first := map[string]string{}
			for range 2 { // at once, as there are none
				r := <-results
				first[r.space] = r.result
			}
			if fmt.Sprint(first) != "map[busy:taken quiet:taken]" {
				t.Errorf("at first: %v", first)
			}
			if got := fmt.Sprint(round(t, s, results, 2)); got != "map[busy:unchanged quiet:unchanged]" {
				t.Errorf("when nothing changed: %s", got)
			}
			for i := range 5 {
				s.put(t, "busy", fmt.Sprintf("/registry/configmaps/default/n%d", i), "x")
				if got := fmt.Sprint(round(t, s, results, 2)); got != "map[busy:taken quiet:unchanged]" {
					t.Errorf("round %d: %s", i, got)
				}
			}
			stop()
			count := func(space string) int {
				infos, err := bucket.List(t.Context(), space)
				if err != nil {
					t.Fatal(err)
				}
				return len(infos)
			}
			if count("busy") != 3 || count("quiet") != 1 {
				t.Errorf("%d and %d are kept, want 3 and 1", count("busy"), count("quiet"))
			}

			s.clock.Step(time.Hour / 2)
			stop = run()
			eventually(t, func() error {
				if !s.clock.HasWaiters() {
					return errors.New("it does not wait")
				}
				return nil
			})
			select {
			case r := <-results:
				t.Errorf("a restart takes one at once: %v", r)
			default:
			}
			stop()
		})
	}
}

// One space that can't be copied, or a bucket that is out of order, keeps
// nobody from the next round.
func TestASnapshotThatFailsIsTriedAgain(t *testing.T) {
	s := newSpaces(t, "sound", "broken")
	s.sleep(t, "broken")
	if err := os.Rename(s.path("broken"), s.path("broken")+".away"); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "bucket")
	bucket := open(t, "file://"+dir)
	results := make(chan seen, 100)
	k := keeper(t, s, bucket, func(space, result string) { results <- seen{space, result} })
	start(t, k)
	if got := next(t, results, 2); fmt.Sprint(got) != "map[broken:failed sound:taken]" {
		t.Errorf("at first: %v", got)
	}
	if err := os.Rename(s.path("broken")+".away", s.path("broken")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := round(t, s, results, 2); fmt.Sprint(got) != "map[broken:failed sound:failed]" {
		t.Errorf("without the bucket: %v", got)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if got := round(t, s, results, 2); got["broken"] != snapshot.Taken {
		t.Errorf("mended: %v", got)
	}
	// What is damaged is told, and not copied over what is sound.
	store, err := os.ReadFile(s.path("broken"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path("broken"), store[:len(store)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Take(t.Context(), "broken", bucket); !errors.Is(err, kine.ErrDamaged) {
		t.Errorf("a damaged store: %v", err)
	}
	entries, err := filepath.Glob(filepath.Join(dir, "*", ".*"))
	if err != nil || len(entries) > 0 {
		t.Errorf("left over: %v (%v)", entries, err)
	}
}

// holding are spaces of which a snapshot hangs until it is released.
type holding struct {
	*spaces
	entered chan string
	release chan struct{}
}

func (h *holding) Snapshot(ctx context.Context, space, path string) (bool, error) {
	h.entered <- space
	<-h.release
	return h.spaces.Snapshot(ctx, space, path)
}

// B9: snapshots wait for each other, as long as who asked for them does.
func TestOneSnapshotIsTakenAtATime(t *testing.T) {
	s := &holding{spaces: newSpaces(t, "first", "second"), entered: make(chan string, 2), release: make(chan struct{})}
	bucket := open(t, "file://"+t.TempDir())
	k, err := snapshot.NewKeeper(snapshot.Config{Dir: s.dir, Scratch: filepath.Join(t.TempDir(), "scratch"), Spaces: s, Clock: s.clock})
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() {
		_, err := k.Take(t.Context(), "first", bucket)
		first <- err
	}()
	<-s.entered
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		_, err := k.Take(ctx, "second", bucket)
		second <- err
	}()
	cancel()
	select {
	case err := <-second:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the second, given up, ends with %v", err)
		}
	case space := <-s.entered:
		t.Errorf("the snapshot of %s does not wait for another", space)
	}
	close(s.release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if _, err := k.Take(t.Context(), "second", bucket); err != nil {
		t.Errorf("after the first, the second ends with %v", err)
	}
}

// logLines keeps lines that are logged.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (w *logLines) add(prefix, line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, prefix+line)
}

func (w *logLines) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.lines, "\n")
}

// D2: each space has its own schedule, place, and number of snapshots; it may change, or be none. What was missed while
// nobody ran is caught up once.
func TestSpacesHaveSchedulesOfTheirOwn(t *testing.T) {
	for kind, url := range buckets(t) {
		t.Run(kind, func(t *testing.T) {
			s := newSpaces(t, "hourly", "quick", "off", "away")
			s.clock.SetTime(time.Now().Add(time.Hour))
			usual, other := open(t, url), open(t, "file://"+t.TempDir())
			var mu sync.Mutex
			schedules := map[string]snapshot.Schedule{
				"hourly": {Bucket: usual, Every: time.Hour, Keep: 3}, "quick": {Bucket: usual, Every: 10 * time.Minute, Keep: 2}, "off": {Bucket: usual, Keep: 3},
				"away": {Bucket: other, Every: time.Hour, Keep: 1},
			}
			set := func(space string, schedule snapshot.Schedule) {
				mu.Lock()
				defer mu.Unlock()
				schedules[space] = schedule
			}
			results := make(chan seen, 100)
			run := func() (stop func()) {
				k, err := snapshot.NewKeeper(snapshot.Config{
					Dir: s.dir, Scratch: filepath.Join(t.TempDir(), "scratch"), Spaces: s, Bucket: usual, Every: time.Hour, Keep: 3, Others: []*snapshot.Bucket{other},
					Schedule: func(space string) snapshot.Schedule {
						mu.Lock()
						defer mu.Unlock()
						return schedules[space]
					},
					Observe: func(space, result string) { results <- seen{space, result} }, Clock: s.clock,
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); k.Run(ctx) }()
				return func() { cancel(); <-done }
			}
			waits := func() {
				t.Helper()
				eventually(t, func() error {
					if !s.clock.HasWaiters() {
						return errors.New("the keeper does not wait for its next round")
					}
					return nil
				})
			}
			// after lets time pass, in which all spaces but one change, and returns what happened.
			after := func(d time.Duration) string {
				t.Helper()
				waits()
				for _, space := range []string{"hourly", "quick", "off"} {
					s.put(t, space, fmt.Sprintf("/registry/configmaps/default/at-%d", s.clock.Now().UnixNano()), "x")
				}
				s.clock.Step(d)
				waits()
				got := map[string]string{}
				for len(results) > 0 {
					r := <-results
					got[r.space] = r.result
				}
				return fmt.Sprint(got)
			}
			count := func(bucket *snapshot.Bucket, space string) int {
				t.Helper()
				infos, err := bucket.List(t.Context(), space)
				if err != nil {
					t.Fatal(err)
				}
				return len(infos)
			}
			stop := run()
			if got := fmt.Sprint(next(t, results, 3)); got != "map[away:taken hourly:taken quick:taken]" {
				t.Errorf("at first: %s", got)
			}
			for i := range 3 {
				if got := after(10 * time.Minute); got != "map[quick:taken]" {
					t.Errorf("after %d times ten minutes: %s", i+1, got)
				}
			}
			if quick, away, off := count(usual, "quick"), count(other, "away"), count(usual, "off"); quick != 2 || away != 1 || off != 0 || count(usual, "away") != 0 {
				t.Errorf("kept are %d of quick, %d of away, %d of off", quick, away, off)
			}
			// Schedules change while it runs.
			set("quick", snapshot.Schedule{Bucket: usual, Keep: 2})
			set("hourly", snapshot.Schedule{Bucket: other, Every: time.Hour, Keep: 3})
			if got := after(time.Minute); got != "map[hourly:taken]" || count(other, "hourly") != 1 {
				t.Errorf("after its place is another: %s, and %d are there", got, count(other, "hourly"))
			}
			set("off", snapshot.Schedule{Bucket: usual, Every: 24 * time.Hour, Keep: 3})
			if got := after(time.Minute); got != "map[off:taken]" {
				t.Errorf("once it is switched on: %s", got)
			}
			if got := after(20 * time.Minute); got != "map[]" {
				t.Errorf("then: %s", got)
			}
			stop()

			for len(results) > 0 {
				<-results
			}
			s.clock.Step(100 * time.Hour)
			stop = run()
			defer stop()
			if got := fmt.Sprint(next(t, results, 3)); got != "map[away:unchanged hourly:taken off:taken]" && got != "map[away:taken hourly:taken off:taken]" {
				t.Errorf("after it was down for days: %s", got)
			}
			if got := after(10 * time.Minute); got != "map[]" {
				t.Errorf("what was missed is caught up again: %s", got)
			}
		})
	}
}
