// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
)

// T8: of two processes that know the same end of the log, one writes the next record.
func TestOneOfTwoProcessesWritesTheNextRecord(t *testing.T) {
	dsn := newDSN(t)
	first, second := openLog(t, dsn), openLog(t, dsn)
	takeOver(t, first)
	want := model{}
	for i := range int64(20) {
		second.moved(first.last())
		logs, errs := []*Log{first, second}, make([]error, 2)
		rows := []mirror.Row{row(i+1, fmt.Sprint("first-", i), "1"), row(i+1, fmt.Sprint("second-", i), "2")}
		var writing sync.WaitGroup
		for n, l := range logs {
			writing.Go(func() { errs[n] = l.Append(t.Context(), rows[n:n+1]) })
		}
		writing.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("round %d: %v, and %v", i, errs[0], errs[1])
		}
		for n, l := range logs {
			if errs[n] == nil {
				want = want.with(rows[n])
				continue
			}
			if l.Fault(errs[n]) != dbms.Lost {
				t.Errorf("round %d: %v", i, errs[n])
			}
			if _, err := l.Reconnect(t.Context()); err != nil { // it is of the same epoch
				t.Fatal(err)
			}
			first.moved(l.last())
			first.lost, second.lost = nil, nil
		}
	}
	got, _ := texts(t, openLog(t, dsn))
	if diff := cmp.Diff(want.texts(), got); diff != "" {
		t.Error(diff)
	}
}

// T8: a process that writes without a pause, as one that is cut off from the host but not from the storage may, is taken over.
func TestAProcessThatWritesAllTheTimeIsTakenOver(t *testing.T) {
	dsn := newDSN(t)
	for range 5 {
		busy := openLog(t, dsn)
		takeOver(t, busy)
		var writing sync.WaitGroup
		var fenced error
		writing.Go(func() {
			for i := int64(1); fenced == nil; i++ {
				fenced = busy.Append(t.Context(), []mirror.Row{row(i, fmt.Sprint("busy-", i), "1")})
			}
		})
		takeOver(t, openLog(t, dsn))
		writing.Wait()
		if !errors.Is(fenced, dbms.ErrFenced) {
			t.Errorf("the process that wrote got %v", fenced)
		}
	}
}

// D1, D4: the number after the end that a takeover has read is free because a base has replaced it meanwhile. The takeover notices that, and has
// all that was acknowledged.
func TestATakeoverBelowABaseDoesNotCount(t *testing.T) {
	dsn := newDSN(t)
	owner := openLog(t, dsn)
	takeOver(t, owner)
	want := model{}
	write := func(key string, revision int64) {
		r := row(revision, key, "1")
		add(t, owner, r)
		want = want.with(r)
	}
	write("before", 1)
	slow, p := through(t, dsn)
	taker := openLog(t, slow)
	meanwhile := sync.OnceFunc(func() {
		for i := range int64(10) {
			write(fmt.Sprint("meanwhile-", i), 2+i)
		}
		if err := compact(t, owner, want.pass); err != nil {
			t.Error(err)
		}
		if err := owner.clean(t.Context()); err != nil {
			t.Error(err)
		}
	})
	p.set(func(r *http.Request) verdict {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/"+logDir) {
			meanwhile()
		}
		return pass
	})
	takeOver(t, taker)
	if err := owner.Append(t.Context(), []mirror.Row{row(20, "late", "1")}); !errors.Is(err, dbms.ErrFenced) {
		t.Errorf("the process of before got %v", err)
	}
	add(t, taker, row(21, "after", "1"))
	got, _ := texts(t, openLog(t, dsn))
	if diff := cmp.Diff(want.with(row(21, "after", "1")).texts(), got); diff != "" {
		t.Error(diff)
	}
}

// T8, D1: processes that take the log over from each other all the time lose nothing that was acknowledged.
func TestProcessesThatRaceLoseNoAcknowledgedWrite(t *testing.T) {
	dsn := newDSN(t)
	var mu sync.Mutex
	want, overtaken := map[string]bool{}, map[int64]bool{}
	var racing sync.WaitGroup
	for process := range 3 {
		l := openLog(t, dsn)
		racing.Go(func() {
			for round := range 8 {
				before, err := l.TakeOver(t.Context(), nil)
				for errors.Is(err, errContended) {
					before, err = l.TakeOver(t.Context(), nil)
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if overtaken[before.Epoch] {
					t.Errorf("two takeovers have ended epoch %d", before.Epoch)
				}
				overtaken[before.Epoch] = true
				mu.Unlock()
				for i := range int64(5) {
					key := fmt.Sprint(process, "-", round, "-", i)
					if l.Append(t.Context(), []mirror.Row{row(before.Revision+i+1, key, "1")}) != nil {
						break
					}
					mu.Lock()
					want[key] = true
					mu.Unlock()
				}
			}
		})
	}
	racing.Wait()
	got, state := texts(t, openLog(t, dsn))
	for key := range want {
		if got[key] == "" {
			t.Errorf("%s was acknowledged, and is missing", key)
		}
	}
	if state.Epoch < 24 { // a takeover that another one follows at once is repeated, and needs one more epoch
		t.Errorf("24 takeovers have led to epoch %d", state.Epoch)
	}
	t.Logf("%d acknowledged writes", len(want))
}

// What asks for a takeover doesn't stay: the process that has the log deletes what is of the past, and nothing that asks for the next one.
func TestRequestsForATakeoverAreDeleted(t *testing.T) {
	dsn := newDSN(t)
	l := openLog(t, dsn)
	takeOver(t, l)
	for epoch := range int64(4) {
		if err := l.bucket.create(t.Context(), wantedKey(epoch), []byte("demo")); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, key := range keys(t, l) {
		if strings.HasPrefix(key, wantedDir) {
			left = append(left, key)
		}
	}
	if diff := cmp.Diff([]string{wantedKey(2), wantedKey(3)}, left); diff != "" {
		t.Errorf("these are left of the requests for epochs 0 to 3 in epoch 1 (-want +got):\n%s", diff)
	}
}
