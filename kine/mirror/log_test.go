// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/internal/testservers"
	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/etcd"
	"github.com/berth-dev/berth/kine/mirror"
	"github.com/berth-dev/berth/kine/nats"
	"github.com/berth-dev/berth/kine/s3"
)

func TestMain(m *testing.M) {
	if testservers.Serve() {
		return
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		testservers.Stop()
		os.Exit(code)
	}), goleak.IgnoreAnyFunction("github.com/berth-dev/berth/internal/testservers.(*Server).launch.func1"))
}

var demo = dbms.Owner{Space: "demo", ID: "1"}

// onEach runs a test with a new log in each type of server. open returns the log for another process.
func onEach(t *testing.T, test func(t *testing.T, open func() mirror.Log)) {
	t.Helper()
	for name, server := range map[string]struct {
		start func(testing.TB) *testservers.Server
		log   func(mirror.Config, dbms.Owner) (mirror.Log, error)
	}{
		"Etcd": {testservers.Etcd, func(c mirror.Config, o dbms.Owner) (mirror.Log, error) { return etcd.New(c, o) }},
		"S3":   {testservers.S3, func(c mirror.Config, o dbms.Owner) (mirror.Log, error) { return s3.New(c, o) }},
		"NATS": {testservers.NATS, func(c mirror.Config, o dbms.Owner) (mirror.Log, error) { return nats.New(c, o) }},
	} {
		t.Run(name, func(t *testing.T) {
			config := mirror.Config{DSN: server.start(t).Database(t)}
			test(t, func() mirror.Log {
				log, err := server.log(config, demo)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = log.Close() })
				return log
			})
		})
	}
}

func takeOver(t *testing.T, log mirror.Log) mirror.State {
	t.Helper()
	before, err := log.TakeOver(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return before
}

// rows returns the values of the current rows.
func rows(t *testing.T, log mirror.Log) (map[string]string, mirror.State) {
	t.Helper()
	found := map[string]string{}
	state, err := log.Rows(t.Context(), func(r mirror.Row) error {
		if r.Deleted {
			delete(found, r.Key)
			return nil
		}
		found[r.Key] = fmt.Sprint(r.Revision, " ", r.CreateRevision, " ", r.Lease, " ", len(r.Value), " ", string(r.Value[:min(10, len(r.Value))]))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found, state
}

// A group may have more changes and bytes than a server allows at once, and several of one key.
func TestALogHasTheLastChangeOfEachKey(t *testing.T) {
	onEach(t, func(t *testing.T, open func() mirror.Log) {
		log := open()
		if state, err := log.State(t.Context()); err != nil || state != (mirror.State{}) {
			t.Errorf("a log that was never used has the state %+v, %v", state, err)
		}
		takeOver(t, log)
		want, revision := map[string]string{}, int64(0)
		for _, size := range []int{0, 5, 100_000} {
			var group []mirror.Row
			for i := range 300 {
				revision++
				r := mirror.Row{Revision: revision, CreateRevision: 1, Lease: int64(i), Key: fmt.Sprint("/registry/ä .*>/", i%200), Value: bytes.Repeat([]byte("x"), size), Deleted: i%7 == 3}
				if i > 20 && size > 1000 {
					r.Value = []byte("small")
				}
				if r.Deleted {
					delete(want, r.Key)
				} else {
					want[r.Key] = fmt.Sprint(revision, " 1 ", i, " ", len(r.Value), " ", string(r.Value[:min(10, len(r.Value))]))
				}
				group = append(group, r)
			}
			if err := log.Append(t.Context(), group); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range []mirror.Log{log, open()} {
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
			got, state := rows(t, l)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if want := (mirror.State{Owner: demo, Epoch: 1, Revision: revision}); state != want {
				t.Errorf("state %+v, want %+v", state, want)
			}
		}
		if err := log.Advance(t.Context(), revision+10); err != nil {
			t.Fatal(err)
		}
		if before := takeOver(t, open()); before.Revision != revision+10 || before.Epoch != 1 {
			t.Errorf("the next process finds %+v", before)
		}
	})
}

// The largest row fits, and one that is larger is refused before anything is sent.
func TestARowIsRefusedBeforeItIsTooLarge(t *testing.T) {
	onEach(t, func(t *testing.T, open func() mirror.Log) {
		log := open()
		takeOver(t, log)
		r := mirror.Row{Revision: 1, CreateRevision: 1, Key: "/registry/large", Value: make([]byte, 2<<20)}
		if err := log.CheckSize(&r); !errors.Is(err, mirror.ErrTooLarge) || log.Fault(err) != dbms.TooLarge {
			t.Errorf("2 MiB: %v", err)
		}
		for log.CheckSize(&r) != nil {
			r.Value = r.Value[:len(r.Value)-1]
		}
		if len(r.Value) < 3<<19-8<<10 {
			t.Errorf("only %d bytes fit", len(r.Value))
		}
		if err := log.Append(t.Context(), []mirror.Row{r}); err != nil {
			t.Errorf("%d bytes: %v", len(r.Value), err)
		}
		got, _ := rows(t, log)
		if want := fmt.Sprint("1 1 0 ", len(r.Value), " "); !strings.HasPrefix(got[r.Key], want) {
			t.Errorf("row %q, want %q", got[r.Key], want)
		}
	})
}

// T8: nothing that an earlier process writes takes effect.
func TestALogThatWasTakenOverRefusesEachChange(t *testing.T) {
	onEach(t, func(t *testing.T, open func() mirror.Log) {
		first, second := open(), open()
		takeOver(t, first)
		row := func(revision int64) []mirror.Row {
			return []mirror.Row{{Revision: revision, CreateRevision: revision, Key: fmt.Sprint("/registry/", revision)}}
		}
		if err := first.Append(t.Context(), row(1)); err != nil {
			t.Fatal(err)
		}
		zero := int64(0)
		if _, err := second.TakeOver(t.Context(), &zero); !errors.Is(err, dbms.ErrFenced) {
			t.Errorf("it was taken over from another epoch than expected: %v", err)
		}
		one := int64(1)
		if before, err := second.TakeOver(t.Context(), &one); err != nil || before.Revision != 1 {
			t.Fatalf("the second process finds %+v, %v", before, err)
		}
		for name, err := range map[string]error{
			"append":    first.Append(t.Context(), append(row(2), row(3)...)),
			"one":       first.Append(t.Context(), row(2)),
			"advance":   first.Advance(t.Context(), 9),
			"files":     first.SaveFiles(t.Context(), map[string][]byte{"a": []byte("late")}),
			"replace":   first.Replace(t.Context(), 9, func(put func(mirror.Row) error) error { return put(row(4)[0]) }),
			"drop":      first.Drop(t.Context()),
			"reconnect": func() error { _, err := first.Reconnect(t.Context()); return err }(),
		} {
			if err == nil {
				t.Errorf("%s took effect", name)
			}
			if name == "reconnect" && !errors.Is(err, dbms.ErrFenced) {
				t.Errorf("reconnect = %v", err)
			}
		}
		if err := second.Append(t.Context(), row(5)); err != nil {
			t.Error(err)
		}
		got, state := rows(t, second)
		want := map[string]string{"/registry/1": "1 1 0 0 ", "/registry/5": "5 5 0 0 "}
		if diff := cmp.Diff(want, got); diff != "" || state != (mirror.State{Owner: demo, Epoch: 2, Revision: 5}) {
			t.Error(diff, state)
		}
		if files, _, err := second.Files(t.Context()); err != nil || files.Epoch != 0 {
			t.Errorf("files %+v, %v", files, err)
		}
		if err := second.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if state, err := open().State(t.Context()); err != nil || state != (mirror.State{}) {
			t.Errorf("after it was dropped: %+v, %v", state, err)
		}
	})
}

// D2: a restore that ends in the middle has no effect, and leaves nothing.
func TestRowsAreReplacedAsAWholeOrNotAtAll(t *testing.T) {
	onEach(t, func(t *testing.T, open func() mirror.Log) {
		log := open()
		takeOver(t, log)
		old := mirror.Row{Revision: 1, CreateRevision: 1, Key: "/registry/old", Value: []byte("old")}
		if err := log.Append(t.Context(), []mirror.Row{old}); err != nil {
			t.Fatal(err)
		}
		fails := errors.New("in the middle")
		put := func(prefix string, result error) func(func(mirror.Row) error) error {
			return func(put func(mirror.Row) error) error {
				for i := range 2000 {
					if err := put(mirror.Row{Revision: int64(i + 1), CreateRevision: 1, Key: fmt.Sprint(prefix, i)}); err != nil {
						return err
					}
				}
				return result
			}
		}
		if err := log.Replace(t.Context(), 5000, put("/registry/lost/", fails)); !errors.Is(err, fails) {
			t.Errorf("replace = %v", err)
		}
		next := open()
		if before := takeOver(t, next); before != (mirror.State{Owner: demo, Epoch: 1, Revision: 1}) {
			t.Errorf("state %+v", before)
		}
		got, _ := rows(t, next)
		if diff := cmp.Diff(map[string]string{old.Key: "1 1 0 3 old"}, got); diff != "" {
			t.Error(diff)
		}
		if err := next.Replace(t.Context(), 5000, put("/registry/new/", nil)); err != nil {
			t.Fatal(err)
		}
		got, state := rows(t, next)
		if len(got) != 2000 || got["/registry/new/7"] != "8 1 0 0 " || state != (mirror.State{Owner: demo, Epoch: 2, Generation: 1, Revision: 5000}) {
			t.Errorf("%d rows, %q, %+v", len(got), got["/registry/new/7"], state)
		}
	})
}

// Files may be larger than what a server takes at once.
func TestFilesAreReplacedAsAWhole(t *testing.T) {
	onEach(t, func(t *testing.T, open func() mirror.Log) {
		log := open()
		takeOver(t, log)
		large := map[string][]byte{"a": bytes.Repeat([]byte{0, 1, 255}, 1<<20), "pki/ca.key": []byte("key")}
		for _, want := range []map[string][]byte{large, {"b": []byte("small")}, large} {
			if err := log.SaveFiles(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			files, state, err := open().Files(t.Context())
			if err != nil || files.Epoch != 1 || !maps.EqualFunc(files.Data, want, bytes.Equal) || state.Epoch != 1 {
				t.Errorf("%d files of epoch %d, %+v, %v", len(files.Data), files.Epoch, state, err)
			}
		}
	})
}
