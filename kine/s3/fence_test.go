// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
)

// later has a log have a clock that is ahead.
func later(l *Log, d time.Duration) {
	l.now = func() time.Time { return time.Now().Add(d) }
}

// T8: the records that a process doesn't know were replaced by a base, and deleted, but not that of the takeover.
func TestAPausedProcessFindsTheTakeover(t *testing.T) {
	dsn := newDSN(t)
	paused, next := openLog(t, dsn), openLog(t, dsn)
	takeOver(t, paused)
	add(t, paused, row(1, "a", "1"))
	takeOver(t, next)
	want := model{}.with(row(1, "a", "1"))
	for i := range int64(10) {
		want = want.with(row(i+2, "b", "2"))
		add(t, next, row(i+2, "b", "2"))
	}
	if err := compact(t, next, want.pass); err != nil {
		t.Fatal(err)
	}
	start := next.last().Start
	for _, key := range keys(t, next) {
		if n, ok := numberOf(next.last().log, key); ok && n < next.last().Base.Number && n != start && n != 1 {
			t.Errorf("%s is there, and was replaced", key)
		}
	}
	mustBe(t, paused.Append(t.Context(), []mirror.Row{row(2, "late", "1")}), dbms.ErrFenced)
	got, _ := texts(t, openLog(t, dsn))
	if diff := cmp.Diff(want.texts(), got); diff != "" {
		t.Error(diff)
	}
}

// T8: after days, the record of the takeover is deleted, too. Then the process doesn't trust what it knows, before it writes and after.
func TestAProcessThatWasPausedForDaysAcknowledgesNothing(t *testing.T) {
	for name, during := range map[string]bool{"BeforeTheWrite": false, "DuringTheWrite": true} {
		t.Run(name, func(t *testing.T) {
			dsn := newDSN(t)
			slow, p := through(t, dsn)
			paused, next := openLog(t, slow), openLog(t, dsn)
			takeOver(t, paused)
			add(t, paused, row(1, "a", "1"))
			want := model{}.with(row(1, "a", "1"))
			slot := recordKey(paused.last().log, paused.last().Number+1)
			days := func() {
				takeOver(t, next)
				takeOver(t, next) // the first of both isn't that of the epoch
				for i := range int64(10) {
					want = want.with(row(i+2, "b", "2"))
					add(t, next, row(i+2, "b", "2"))
				}
				later(next, 8*24*time.Hour)
				if _, err := next.Epoch(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := compact(t, next, want.pass); err != nil {
					t.Fatal(err)
				}
				if slices.Contains(keys(t, next), slot) {
					t.Fatalf("%s is there: the test shows nothing", slot)
				}
				later(paused, 8*24*time.Hour)
			}
			if during {
				once := sync.OnceFunc(days)
				p.set(func(r *http.Request) verdict {
					if r.Method == http.MethodPut {
						once()
					}
					return pass
				})
			} else {
				days()
			}
			err := paused.Append(t.Context(), []mirror.Row{row(2, "late", "1")})
			if during && paused.Fault(err) != dbms.Lost || !during && !errors.Is(err, dbms.ErrFenced) {
				t.Errorf("append = %v", err)
			}
			if there := slices.Contains(keys(t, next), slot); there != during {
				t.Errorf("the late record is there: %t", there)
			}
			_, err = paused.Reconnect(t.Context())
			mustBe(t, err, dbms.ErrFenced)
			add(t, next, row(20, "c", "3"))
			want = want.with(row(20, "c", "3"))
			got, _ := texts(t, openLog(t, dsn))
			if diff := cmp.Diff(want.texts(), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// T8: a process doesn't trust that it has the log, either, if it only reads.
func TestAProcessThatWasPausedForDaysServesNoReads(t *testing.T) {
	dsn := newDSN(t)
	paused, next := openLog(t, dsn), openLog(t, dsn)
	takeOver(t, paused)
	takeOver(t, next)
	if err := next.bucket.remove(t.Context(), recordKey(next.last().log, next.last().Number)); err != nil { // as a base would
		t.Fatal(err)
	}
	next.moved(position{log: next.last().log, record: paused.last().record, known: time.Now()})
	next.end.Number++
	next.end.Epoch, next.end.Start = 2, 2
	add(t, next, row(1, "a", "1"))
	if epoch, err := paused.Epoch(t.Context()); err != nil || epoch != 1 {
		t.Fatalf("epoch %d, %v: the test shows nothing", epoch, err)
	}
	later(paused, 2*time.Hour)
	if epoch, err := paused.Epoch(t.Context()); err != nil || epoch != 2 {
		t.Errorf("epoch %d, %v", epoch, err)
	}
}

// A write that has succeeded is acknowledged, also if its response was lost.
func TestARecordWhoseResponseWasLostIsRecognized(t *testing.T) {
	dsn := newDSN(t)
	slow, p := through(t, dsn)
	l := openLog(t, slow)
	takeOver(t, l)
	lose := 1
	p.set(func(r *http.Request) verdict {
		if r.Method == http.MethodPut && lose > 0 {
			lose--
			return dropBack
		}
		return pass
	})
	add(t, l, row(1, "a", "1"))
	add(t, l, row(2, "b", "2"))
	got, state := texts(t, openLog(t, dsn))
	if diff := cmp.Diff(map[string]string{"a": "1 1", "b": "2 2"}, got); diff != "" || state.Revision != 2 || lose != 0 {
		t.Error(diff, state)
	}
}

// A write whose outcome can't be found out is Lost. Reconnect tells it, and keeps a request that is still on its way from taking effect.
func TestAfterALostWriteALogConnectsAgain(t *testing.T) {
	for name, lost := range map[string]struct {
		verdict
		revision int64
	}{"Written": {dropBack, 1}, "NotWritten": {drop, 0}} {
		t.Run(name, func(t *testing.T) {
			dsn := newDSN(t)
			slow, p := through(t, dsn)
			l := openLog(t, slow)
			takeOver(t, l)
			before := l.last()
			p.set(func(*http.Request) verdict { return lost.verdict })
			err := l.Append(t.Context(), []mirror.Row{row(1, "a", "1")})
			if l.Fault(err) != dbms.Lost || strings.Contains(err.Error(), "berthsecret") {
				t.Errorf("append = %v", err)
			}
			p.set(func(*http.Request) verdict { return pass })
			if err := l.Advance(t.Context(), 5); l.Fault(err) != dbms.Lost {
				t.Errorf("advance = %v, want it lost", err)
			}
			state, err := l.Reconnect(t.Context())
			if err != nil || state.Revision != lost.revision {
				t.Errorf("reconnect = %+v, %v", state, err)
			}
			late := *next(t, l, before)
			if there, err := l.write(t.Context(), &late); there.Nonce == late.next.Nonce || err != nil {
				t.Errorf("a late request has written %v (%v)", there, err)
			}
			add(t, l, row(2, "b", "2"))
		})
	}
}

// next returns the record after the end of a log, as it may still be on its way.
func next(t *testing.T, l *Log, end position) *change {
	t.Helper()
	c, err := l.prepare(end, end.record, appendRow(nil, &mirror.Row{Revision: 1, Key: "late"}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// T8: without conditional writes, two processes could write.
func TestAStorageWithoutConditionalWritesIsRefused(t *testing.T) {
	for name, v := range map[string]verdict{"Ignored": accept, "NotImplemented": reject} {
		t.Run(name, func(t *testing.T) {
			slow, p := through(t, newDSN(t))
			p.set(func(r *http.Request) verdict {
				if r.Header.Get("If-None-Match") != "" {
					return v
				}
				return pass
			})
			l := openLog(t, slow)
			_, err := l.TakeOver(t.Context(), nil)
			if mustBe(t, err, errUnconditional); l.Fault(err) != dbms.Failed {
				t.Errorf("it is the fault %d", l.Fault(err))
			}
		})
	}
}

// A log that was deleted, and created again, has nothing of the earlier one, whatever a process of that does.
func TestALogThatWasCreatedAgainIsAnotherOne(t *testing.T) {
	dsn := newDSN(t)
	paused, next := openLog(t, dsn), openLog(t, dsn)
	takeOver(t, paused)
	add(t, paused, row(1, "a", "1"), row(2, "b", "1"))
	if err := paused.SaveFiles(t.Context(), map[string][]byte{"key": []byte("1")}); err != nil {
		t.Fatal(err)
	}
	takeOver(t, next)
	if err := next.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := keys(t, next); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	other := openLog(t, dsn)
	takeOver(t, other)
	_ = paused.Append(t.Context(), []mirror.Row{row(3, "late", "1")}) // nobody acknowledges anything for a space that was deleted
	for i := range int64(8) {
		add(t, other, row(i+1, "new", "1"))
	}
	got, _ := texts(t, openLog(t, dsn))
	if diff := cmp.Diff(map[string]string{"new": "8 1"}, got); diff != "" {
		t.Error(diff)
	}
	_, err := paused.Reconnect(t.Context())
	mustBe(t, err, dbms.ErrFenced)
	if err := compact(t, other, model{}.with(row(8, "new", "1")).pass); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys(t, other) {
		if strings.HasPrefix(key, logDir) && !strings.HasPrefix(key, logOf(other.last().log)) {
			t.Errorf("%s is left of the other log", key)
		}
	}
}

// Keys that the storage rejects may be accepted later. Until then, the store can't be used, and tenants don't read why.
func TestRejectedKeysAreAnOutage(t *testing.T) {
	dsn := newDSN(t)
	takeOver(t, openLog(t, dsn))
	l := openLog(t, strings.Replace(dsn, "berthsecret", "another", 1))
	_, err := l.TakeOver(t.Context(), nil)
	if err == nil || l.Fault(err) != dbms.Lost || strings.Contains(err.Error(), "another") {
		t.Errorf("take over: %v", err)
	}
	missing := openLog(t, strings.Replace(dsn, "/spaces/", "-missing/spaces/", 1))
	if _, err := missing.State(t.Context()); err == nil || missing.Fault(err) != dbms.Lost || !strings.Contains(err.Error(), "NoSuchBucket") {
		t.Errorf("state in a bucket that is missing: %v", err)
	}
}
