// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
)

// Writes go on while a base is written, which may have some of them.
func TestABaseIsWrittenWhileRecordsAreAppended(t *testing.T) {
	dsn := newDSN(t)
	l := openLog(t, dsn)
	l.limits.partBytes = 10 // a row in each
	takeOver(t, l)
	rows, revision := model{}, int64(0)
	change := func(r mirror.Row) {
		revision++
		r.Revision, r.CreateRevision = revision, revision
		add(t, l, r)
		rows = rows.with(r)
	}
	for i := range 10 {
		change(row(0, fmt.Sprint("key-", i%7), "before"))
	}
	work := l.Compact()
	if work == nil {
		t.Fatal("no base is due")
	}
	change(row(0, "key-1", "in the base already"))
	change(mirror.Row{Key: "key-2", Deleted: true})
	err := work(t.Context(), func(put func(mirror.Row) error) error {
		i := 0
		return rows.pass(func(r mirror.Row) error { // of one moment: with changes, the model is another one
			if i++; i%2 == 0 {
				change(row(0, fmt.Sprint("key-", i), "after"))
				change(mirror.Row{Key: fmt.Sprint("key-", i+1), Deleted: true})
			}
			return put(r)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if base := l.last().Base; base.Parts < 5 || base.Number == 0 {
		t.Errorf("the base is %+v", base)
	}
	got, state := texts(t, openLog(t, dsn))
	if diff := cmp.Diff(rows.texts(), got); diff != "" || state.Revision != revision {
		t.Error(diff, state)
	}
}

// T8: a base of a process that was taken over has no effect, and is deleted.
func TestABaseOfAProcessThatWasTakenOverHasNoEffect(t *testing.T) {
	dsn := newDSN(t)
	first, second := openLog(t, dsn), openLog(t, dsn)
	takeOver(t, first)
	rows := model{}
	for i := range int64(6) {
		rows = rows.with(row(i+1, "a", fmt.Sprint(i)))
		add(t, first, row(i+1, "a", fmt.Sprint(i)))
	}
	err := compact(t, first, func(put func(mirror.Row) error) error {
		err := rows.pass(put)
		takeOver(t, second)
		add(t, second, row(7, "b", "7"))
		return err
	})
	mustBe(t, err, dbms.ErrFenced)
	rows = rows.with(row(7, "b", "7"))
	if err := compact(t, second, rows.pass); err != nil {
		t.Fatal(err)
	}
	got, _ := texts(t, openLog(t, dsn))
	if diff := cmp.Diff(rows.texts(), got); diff != "" {
		t.Error(diff)
	}
	mustBeTidy(t, second)
}

// A restore while a base is written counts, and not the base of what was before.
func TestABaseOfReplacedRowsHasNoEffect(t *testing.T) {
	dsn := newDSN(t)
	l := openLog(t, dsn)
	takeOver(t, l)
	for i := range int64(6) {
		add(t, l, row(i+1, "old", "1"))
	}
	restored := model{}.with(row(1, "new", "1"))
	err := compact(t, l, func(put func(mirror.Row) error) error {
		if err := l.Replace(t.Context(), 50, restored.pass); err != nil {
			t.Fatal(err)
		}
		return put(row(6, "old", "1"))
	})
	if err == nil {
		t.Error("the base was made the current one")
	}
	got, state := texts(t, openLog(t, dsn))
	if diff := cmp.Diff(restored.texts(), got); diff != "" || state.Generation != 1 || state.Revision != 50 {
		t.Error(diff, state)
	}
}

// mustBeTidy fails if there are objects that are not needed.
func mustBeTidy(t *testing.T, l *Log) {
	t.Helper()
	needed := l.needed()
	for _, key := range keys(t, l) {
		if !needed.keeps(object{key: key, modified: time.Now()}) {
			t.Errorf("%s is left", key)
		}
	}
}

// D1: a process may end at each write, before it or after it. What was acknowledged is there, a restore has replaced all or nothing,
// and the next process deletes what is left.
func TestNothingIsLostAtAnyWriteAtWhichAProcessEnds(t *testing.T) {
	count := crashAt(t, math.MaxInt, drop)
	if t.Logf("%d writes", count); count < 30 {
		t.Error("there are too few writes: the test shows nothing")
	}
	for name, end := range map[string]verdict{"Before": drop, "After": dropBack} {
		t.Run(name, func(t *testing.T) {
			for n := range count {
				t.Run(strconv.Itoa(n+1), func(t *testing.T) {
					t.Parallel()
					crashAt(t, n+1, end)
				})
			}
		})
	}
}

// crashAt ends a process at its write n, and returns how many it has made.
func crashAt(t *testing.T, n int, end verdict) (count int) {
	t.Helper()
	dsn := newDSN(t)
	slow, p := through(t, dsn)
	l := openLog(t, slow)
	var made atomic.Int64
	p.set(func(r *http.Request) verdict {
		now := int(made.Load())
		if writes(r) {
			now = int(made.Add(1))
		}
		switch {
		case now < n:
			return pass
		case now == n && writes(r):
			return end
		}
		return drop // it has ended
	})
	before, after, err := live(t, l)
	count = int(made.Load())
	if err != nil && l.Fault(err) != dbms.Lost && !errors.Is(err, errLive) {
		t.Errorf("write %d: %v", n, err)
	}
	next := openLog(t, dsn)
	state := takeOver(t, next)
	got, _ := texts(t, next)
	if cmp.Diff(before.texts(), got) != "" && cmp.Diff(after.texts(), got) != "" {
		t.Errorf("write %d: the log has neither the rows of before nor those of after it: %s", n, cmp.Diff(after.texts(), got))
	}
	rows := after
	if cmp.Diff(before.texts(), got) == "" {
		rows = before
	}
	for i := range int64(6) {
		r := row(state.Revision+1000+i, "next", "1")
		add(t, next, r)
		rows = rows.with(r)
	}
	if err := compact(t, next, rows.pass); err != nil {
		t.Errorf("write %d: %v", n, err)
	}
	mustBeTidy(t, next)
	if got, _ := texts(t, openLog(t, dsn)); cmp.Diff(rows.texts(), got) != "" {
		t.Errorf("write %d: after another base: %s", n, cmp.Diff(rows.texts(), got))
	}
	if err := next.Drop(t.Context()); err != nil {
		t.Error(err)
	}
	return count
}

// errLive is an error of something other than a write.
var errLive = errors.New("the process has ended")

// live does all that a process does with a log, and returns its rows before and after what failed.
func live(t *testing.T, l *Log) (before, after model, err error) {
	t.Helper()
	ctx, rows := t.Context(), model{}
	if _, err := l.TakeOver(ctx, nil); err != nil {
		return rows, rows, errors.Join(errLive, err)
	}
	revision := int64(0)
	for i := range 12 {
		group := []mirror.Row{}
		for k := range 3 {
			revision++
			group = append(group, mirror.Row{Revision: revision, CreateRevision: 1, Key: fmt.Sprint((i + k) % 5), Value: []byte{byte(i)}, Deleted: (i+k)%4 == 3})
		}
		if err := l.Append(ctx, group); err != nil {
			return rows, rows.with(group...), err
		}
		rows = rows.with(group...)
		if work := l.Compact(); work != nil {
			if err := work(ctx, rows.pass); err != nil {
				return rows, rows, errors.Join(errLive, err)
			}
		}
		if i == 3 || i == 8 {
			if err := l.SaveFiles(ctx, map[string][]byte{"key": {byte(i)}}); err != nil {
				return rows, rows, errors.Join(errLive, err)
			}
		}
		if i == 7 {
			restored := model{}.with(row(1, "restored", "1"))
			if err := l.Replace(ctx, revision+10, restored.pass); err != nil {
				return rows, restored, errors.Join(errLive, err)
			}
			rows, revision = restored, revision+10
		}
	}
	return rows, rows, nil
}

// What is deleted is what no reader and no fence needs.
func TestOnlyWhatWasReplacedIsDeleted(t *testing.T) {
	now := time.Now()
	k := kept{
		end:       position{log: "L", record: record{Number: 100, Start: 7, Base: base{Name: "B", Number: 50}, Files: "F"}},
		names:     map[string]bool{"B": true, "F": true, "U": true},
		takeovers: map[int64]bool{3: true, 4: true, 7: true},
		since:     now.Add(-time.Hour),
	}
	old := []int64{4, 7}
	for key, want := range map[string]bool{
		recordKey("L", 100): true, recordKey("L", 51): true, recordKey("L", 50): false, recordKey("L", 1): false,
		recordKey("L", 3): true, // a young takeover
		recordKey("L", 4): false, recordKey("L", 7): true, recordKey("M", 100): false, "log/L/x": false,
		"base/B/00000000": true, "base/U/00000000": true, "base/C/00000000": false, "files/F": true, "files/U": true, "files/G": false,
		"store": true, "other": true, "other/log/L": true,
	} {
		modified := now
		if n, _ := numberOf("L", key); slices.Contains(old, n) {
			modified = now.Add(-2 * time.Hour)
		}
		if got := k.keeps(object{key: key, modified: modified}); got != want {
			t.Errorf("%s is kept: %t, want %t", key, got, want)
		}
	}
}
