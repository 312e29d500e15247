// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/klog/v2"
	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

// env is a recorder of a file that can be opened again.
type env struct {
	path  string
	clock *testingclock.FakeClock
	store *Store
	*Recorder
	samples []Sample
}

func newEnv(t interface{ Fatal(...any) }, dir string) *env {
	e := &env{path: filepath.Join(dir, "usage.db"), clock: testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC))}
	e.open(t)
	return e
}

func (e *env) open(t interface{ Fatal(...any) }) {
	store, damaged, err := Open(context.Background(), e.path)
	if err != nil || damaged != "" {
		t.Fatal(err, damaged)
	}
	e.store = store
	e.Recorder = New(Config{
		Store: store, Clock: e.clock, Logger: klog.Background(), TenantOf: func(space string) string { return "of-" + space[:1] },
		Samples: func(context.Context) []Sample { return e.samples },
	})
}

func (e *env) request(space string, code int, received, sent int64) {
	moved, end := e.Begin(space, httptest.NewRequest(http.MethodGet, "/api", nil))
	moved(received, sent)
	e.clock.Step(time.Millisecond)
	end(code)
}

func (e *env) records(t interface{ Fatal(...any) }) []Record {
	records, err := e.store.Records(context.Background(), Query{Since: time.Unix(0, 0), Until: e.clock.Now().Add(time.Hour)}, e.clock.Now().Add(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// L2: whatever is requested, flushed, and lost in crashes, the records are what was counted until the last flush.
func TestRecordsAreWhatWasCountedAndFlushed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "metering")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		e := newEnv(t, dir)
		defer func() { _ = e.store.Close() }()
		begin := e.clock.Now()
		flushed, live := map[string]int64{}, map[string]int64{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"request", "request", "request", "flush", "interrupted flush", "unsure flush", "crash", "hour", "roll up"}).Draw(t, "step") {
			case "request":
				space := rapid.SampledFrom([]string{"a1", "a2", "b1"}).Draw(t, "space")
				e.request(space, rapid.SampledFrom([]int{0, 200, 201, 299, 404, 777}).Draw(t, "code"), 1, 2)
				live[space]++
			case "interrupted flush": // nothing of it is written
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				if err := e.Flush(ctx); err == nil && e.pending != nil {
					t.Fatal("the flush was not interrupted")
				}
			case "unsure flush": // all of it is written, and the commit fails nevertheless
				e.flushing.Lock()
				if e.pending == nil {
					e.pending = e.take()
				}
				if e.pending != nil {
					if err := e.store.write(context.Background(), e.pending); err != nil {
						t.Fatal(err)
					}
				}
				e.flushing.Unlock()
				fallthrough
			case "flush":
				if err := e.Flush(context.Background()); err != nil {
					t.Fatal(err)
				}
				for space, n := range live {
					flushed[space] += n
				}
				clear(live)
			case "crash":
				_ = e.store.Close()
				e.open(t)
				clear(live)
			case "hour":
				e.clock.Step(time.Hour)
			case "roll up":
				e.clock.Step(40 * 24 * time.Hour)
				if err := e.store.rollUp(context.Background(), e.clock.Now()); err != nil {
					t.Fatal(err)
				}
			}
			if e.clock.Since(begin) > (keepDays-41)*24*time.Hour {
				break // another step could delete the oldest records, which is as it should be
			}
		}
		got := map[string]int64{}
		for _, r := range e.records(t) {
			got[r.Space] = r.Requests
			if r.ReceivedBytes != r.Requests || r.SentBytes != 2*r.Requests || r.TimedRequests != r.Requests {
				t.Fatalf("%+v", r)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(flushed) {
			t.Fatalf("recorded %v, counted %v", got, flushed)
		}
	})
}

// L2: a transaction that fails half-way leaves nothing, and the next flush writes all of it once.
func TestAFlushThatFailsIsWrittenOnceLater(t *testing.T) {
	e := newEnv(t, t.TempDir())
	defer e.store.Close()
	e.request("a1", 200, 0, 0)
	if _, err := e.store.db.Exec(`CREATE TRIGGER fail BEFORE UPDATE ON state BEGIN SELECT RAISE(ABORT, 'disk full'); END`); err != nil {
		t.Fatal(err)
	}
	if err := e.Flush(t.Context()); err == nil || len(e.records(t)) != 0 {
		t.Fatalf("%v", err)
	}
	e.request("a1", 200, 0, 0)
	if _, err := e.store.db.Exec(`DROP TRIGGER fail`); err != nil {
		t.Fatal(err)
	}
	if err := e.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if records := e.records(t); len(records) != 1 || records[0].Requests != 2 {
		t.Errorf("%+v", records)
	}
}

// L2, S: a tenant that creates and deletes spaces in a loop doesn't grow the file without limit, and nothing that it used is lost.
func TestHostileSpacesInALoopShareARecord(t *testing.T) {
	e := newEnv(t, t.TempDir())
	defer e.store.Close()
	e.request("b-neighbor", 200, 0, 0)
	const spaces = 3 * MaxSpaces
	for i := range spaces {
		e.request(fmt.Sprintf("a%d", i), 200, 0, 0)
		if i%700 == 0 {
			if err := e.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func() {
		t.Helper()
		if err := e.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		var rows, sum int64
		for _, r := range e.records(t) {
			if r.Tenant == "of-a" {
				rows, sum = rows+1, sum+r.Requests
			} else if r.Space != "b-neighbor" {
				t.Errorf("%+v", r)
			}
		}
		if rows < MaxSpaces || rows > MaxSpaces+1 || sum != spaces {
			t.Errorf("%d records of %d requests", rows, sum)
		}
	}
	check()
	e.clock.Step(40 * 24 * time.Hour)
	if err := e.store.rollUp(t.Context(), e.clock.Now()); err != nil {
		t.Fatal(err)
	}
	check()
	e.clock.Step(keepDays * 24 * time.Hour)
	if err := e.store.rollUp(t.Context(), e.clock.Now()); err != nil || len(e.records(t)) != 0 {
		t.Errorf("after their time: %v", err)
	}
}

// L2: samples count for the time since the last one, by hour. A gap counts nothing, and a space that sleeps keeps its objects.
func TestSamplesCountTheTimeBetweenThem(t *testing.T) {
	e := newEnv(t, t.TempDir())
	objects := 10.0
	e.samples = []Sample{{Tenant: "acme", Space: "a", CPU: 2, Memory: 1 << 30, Storage: 3 << 30, Pods: 4, Objects: &objects}}
	e.clock.Step(59 * time.Minute)
	e.Sample(t.Context())
	e.clock.Step(2 * time.Minute)
	e.Sample(t.Context())
	e.samples[0].Objects = nil
	e.clock.Step(2 * time.Minute)
	e.Sample(t.Context())
	e.clock.Step(2 * time.Hour) // a gap
	e.Sample(t.Context())
	if err := e.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = e.store.Close()
	e.open(t)
	defer e.store.Close()
	r := e.records(t)[0]
	near := func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }
	if !near(r.MeasuredHours, 4./60) || !near(r.CPUHours, 8./60) || !near(r.MemoryGiBHours, 4./60) || !near(r.StorageGiBHours, 12./60) || !near(r.PodHours, 16./60) || !near(r.Objects, 10) {
		t.Errorf("%+v", r)
	}
	if last, err := e.store.objects(t.Context()); err != nil || last["a"] != 10 {
		t.Errorf("%v %v", last, err)
	}
	var hours int
	if err := e.store.db.QueryRow("SELECT COUNT(*) FROM use").Scan(&hours); err != nil || hours != 2 {
		t.Errorf("%d hours (%v)", hours, err)
	}
}

// L2: a damaged file is kept, and doesn't keep Berth from starting. One of a newer Berth is refused.
func TestADamagedFileIsMovedAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.db")
	if err := os.WriteFile(path, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("this is not a database, whatever its name says, and it is long enough for a header of one"), 0o600); err != nil {
		t.Fatal(err)
	}
	store, damaged, err := Open(t.Context(), path)
	if err != nil || damaged == "" {
		t.Fatal(err, damaged)
	}
	if _, err := os.Stat(damaged); err != nil {
		t.Error(err)
	}
	if _, err := store.db.Exec("PRAGMA user_version = 2"); err != nil {
		t.Fatal(err)
	}
	_ = store.Close()
	if _, _, err := Open(t.Context(), path); err == nil || errors.Is(err, sql.ErrNoRows) {
		t.Errorf("a newer file: %v", err)
	}
}
