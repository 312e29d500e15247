// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"bufio"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"
)

// carelessEnv makes the child write to a SQLite file that it does not sync.
const carelessEnv = "KINE_TEST_CARELESS"

// acknowledged is a write, and how long the journal was when its acknowledgment had been read: all that the write was
// acknowledged for is before that.
type acknowledged struct {
	key     string
	rev     int64
	journal int64
}

// recordChild runs a child on the store at path until it has acknowledged enough writes, and returns what it did to the files and acknowledged.
func recordChild(t *testing.T, path string, enough int, careless bool) ([]record, []acknowledged) {
	t.Helper()
	dir := t.TempDir()
	library, journal := filepath.Join(dir, "record.so"), filepath.Join(dir, "journal")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-o", library, "testdata/record.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("compile the library that records writes (SQLite needs a C compiler, too): %v\n%s", err, out)
	}
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), childEnv+"="+path, "LD_PRELOAD="+library, "POWER_JOURNAL="+journal, "POWER_STORE="+path)
	if careless {
		c.Env = append(c.Env, carelessEnv+"=1")
	}
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var acked []acknowledged
	timer := time.AfterFunc(20*time.Second, func() { _ = c.Process.Kill() }) // a slow disk
	defer timer.Stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var a acknowledged
		if n, _ := fmt.Sscan(lines.Text(), &a.key, &a.rev); n != 2 {
			continue
		}
		fi, err := os.Stat(journal)
		if err != nil {
			t.Fatal(err)
		}
		a.journal = fi.Size()
		if acked = append(acked, a); len(acked) == enough {
			_ = c.Process.Kill()
		}
	}
	_ = c.Wait()
	return records(read(t, journal)), acked
}

// cut is a disk whose power fails at a place in the journal, and what had been acknowledged before.
func cut(files map[string][]byte, all []record, acked []acknowledged, at int) (*disk, map[string]int64) {
	d, before := newDisk(files), map[string]int64{}
	for _, r := range all[:at] {
		d.do(r)
	}
	for _, a := range acked {
		if a.journal <= all[at-1].end {
			before[a.key] = a.rev
		}
	}
	return d, before
}

// D1: an acknowledged write survives a loss of power, and the store is sound: what was not synced is dropped, or any part
// of it, at any moment, also while the log goes into the file.
func TestNoAcknowledgedWriteIsLostToALossOfPower(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	write(t, path, soundStore(t, 30))
	files := map[string][]byte{path: read(t, path)}
	all, acked := recordChild(t, path, 1500, false)
	random := rand.New(rand.NewPCG(10, 1))
	var checkpoints []int // the log goes into the file where the file is written
	for i, r := range all {
		if r.path == path && r.kind == written {
			checkpoints = append(checkpoints, i+1)
		}
	}
	if len(acked) < 100 || len(checkpoints) == 0 {
		t.Fatalf("%d writes were acknowledged, and %d went from the log into the file: the test shows nothing", len(acked), len(checkpoints))
	}
	most := 0
	for round := range 40 {
		at := 1 + random.IntN(len(all))
		if round%2 == 0 {
			at = checkpoints[random.IntN(len(checkpoints))]
		}
		d, before := cut(files, all, acked, at)
		most = max(most, len(before))
		dir := t.TempDir()
		if round%4 < 2 {
			d.fail(t, dir, nil)
		} else {
			d.fail(t, dir, random)
		}
		mustHold(t, place{path: filepath.Join(dir, "state.db")}, before)
		if t.Failed() {
			t.Fatalf("power failed after record %d of %d", at, len(all))
		}
	}
	if most < 50 {
		t.Errorf("no more than %d writes had been acknowledged when the power failed: the test shows nothing", most)
	}
	t.Logf("%d acknowledged writes, %d records, %d of checkpoints", len(acked), len(all), len(checkpoints))
}

// The test above would see a store that does not sync: what one acknowledges is lost.
func TestALossOfPowerTakesWhatIsNotSynced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	execSQL(t, path, "PRAGMA journal_mode=WAL; CREATE TABLE kept (key TEXT)")
	files := map[string][]byte{path: read(t, path)}
	all, acked := recordChild(t, path, 200, true)
	d, before := cut(files, all, acked, len(all))
	dir := t.TempDir()
	d.fail(t, dir, nil)
	db, err := sql.Open("sqlite3", filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var kept int
	if err := db.QueryRow("SELECT count(*) FROM kept").Scan(&kept); err != nil {
		t.Fatal(err)
	}
	if len(before) == 0 || kept >= len(before) {
		t.Errorf("of %d acknowledged writes that were not synced, %d are there", len(before), kept)
	}
}

// runCareless acknowledges writes that are not synced.
func runCareless(path string) error {
	db, err := sql.Open("sqlite3", path+"?_journal_mode=WAL&_synchronous=OFF")
	if err != nil {
		return err
	}
	defer db.Close()
	for i := 0; ; i++ { // until it is killed: what it closed would be synced
		if _, err := db.Exec("INSERT INTO kept VALUES (?)", fmt.Sprint(i)); err != nil {
			return err
		}
		fmt.Printf("key-%d 1\n", i)
	}
}
