// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/sqlite"
)

// used has a log with records, a base, and files.
func used(t *testing.T, l *Log) {
	t.Helper()
	takeOver(t, l)
	rows := model{}
	for i := range int64(6) {
		r := row(i+1, "a", "1")
		add(t, l, r)
		rows = rows.with(r)
	}
	if err := compact(t, l, rows.pass); err != nil {
		t.Fatal(err)
	}
	add(t, l, row(7, "b", "1"))
	if err := l.SaveFiles(t.Context(), map[string][]byte{"key": []byte("1")}); err != nil {
		t.Fatal(err)
	}
}

// A deletion that ends at any write goes on in the next process, and leaves nothing.
func TestADropThatWasInterruptedGoesOn(t *testing.T) {
	count := dropUntil(t, math.MaxInt, drop)
	if t.Logf("%d writes", count); count < 4 {
		t.Error("there are too few writes: the test shows nothing")
	}
	for name, end := range map[string]verdict{"Before": drop, "After": dropBack} {
		for n := range count {
			t.Run(name+strconv.Itoa(n+1), func(t *testing.T) { dropUntil(t, n+1, end) })
		}
	}
}

// dropUntil interrupts a deletion at its write n, and returns how many it has made.
func dropUntil(t *testing.T, n int, end verdict) int {
	t.Helper()
	dsn := newDSN(t)
	slow, p := through(t, dsn)
	l := openLog(t, slow)
	used(t, l)
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
		return drop
	})
	err := l.Drop(t.Context())
	if n == math.MaxInt && err != nil || n < math.MaxInt && err == nil && int(made.Load()) > n {
		t.Errorf("drop = %v", err)
	}
	next := openLog(t, dsn)
	takeOver(t, next)
	if err := next.Drop(t.Context()); err != nil {
		t.Errorf("write %d: the next drop = %v", n, err)
	}
	if left := keys(t, next); len(left) > 0 {
		t.Errorf("write %d: %v are left", n, left)
	}
	return int(made.Load())
}

// D1: files are not deleted while it is unknown whether a record names them.
func TestFilesOfALostRecordAreKept(t *testing.T) {
	dsn := newDSN(t)
	slow, p := through(t, dsn)
	l := openLog(t, slow)
	used(t, l)
	p.set(func(r *http.Request) verdict {
		switch {
		case !strings.Contains(r.URL.Path, "/"+logDir):
			return pass
		case r.Method == http.MethodPut:
			return dropBack
		}
		return drop
	})
	if err := l.SaveFiles(t.Context(), map[string][]byte{"key": []byte("2")}); l.Fault(err) != dbms.Lost {
		t.Fatalf("save = %v, want it lost", err)
	}
	p.set(func(*http.Request) verdict { return pass })
	if err := l.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Reconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, _, err := openLog(t, dsn).Files(t.Context())
	if err != nil || string(files.Data["key"]) != "2" {
		t.Errorf("files = %s, %v", files.Data["key"], err)
	}
	if err := l.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustBeTidy(t, l)
}

// D1: a log whose records are all gone is not a new one.
func TestALogWithoutRecordsIsNotNew(t *testing.T) {
	l := openLog(t, newDSN(t))
	used(t, l)
	before := keys(t, l)
	for _, key := range before {
		if strings.HasPrefix(key, logDir) {
			if err := l.bucket.remove(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err := l.TakeOver(t.Context(), nil)
	mustBe(t, err, sqlite.ErrDamaged)
	after := slices.DeleteFunc(before, func(key string) bool { return strings.HasPrefix(key, logDir) })
	if left := keys(t, l); !slices.Equal(left, after) {
		t.Errorf("%v are left of %v", left, after)
	}
}
