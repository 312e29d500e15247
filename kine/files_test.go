// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/kine/dbms"
)

// T9, D4: the files of a space are in its database, of the process that has the store and no other.
func TestTheDatabaseHasTheFilesOfASpace(t *testing.T) {
	onServers(t, func(t *testing.T, p place) {
		ctx := t.Context()
		has := func(what string, epoch, saved int64, want map[string][]byte) {
			t.Helper()
			files, is, err := kine.ReadFiles(ctx, "demo", *p.server)
			if err != nil || is != epoch || files.Epoch != saved || !cmp.Equal(files.Data, want) {
				t.Errorf("%s: epoch %d, files %+v (%v), want %d, %d %v", what, is, files, err, epoch, saved, want)
			}
		}
		has("before the first start", 0, 0, nil)
		first := p.open(t)
		has("before they are saved", 1, 0, map[string][]byte{})
		one := map[string][]byte{"pki/ca.key": {0, 255, 'x'}, "empty": {}}
		if err := errors.Join(first.CheckFiles(ctx, 0), first.SaveFiles(ctx, one), first.SaveFiles(ctx, one)); err != nil {
			t.Fatal(err)
		}
		has("saved", 1, 1, one)
		if err := first.SaveFiles(ctx, map[string][]byte{"large": make([]byte, dbms.MaxFiles)}); err == nil {
			t.Error("files without a bound were saved")
		}
		has("after too large ones", 1, 1, one)

		_, epoch, err := kine.ReadFiles(ctx, "demo", *p.server)
		if err != nil {
			t.Fatal(err)
		}
		second := p.elsewhere(t).open(t)
		if err := second.SaveFiles(ctx, one); err != nil {
			t.Fatal(err)
		}
		has("the same, by another process", 2, 1, one)
		two := map[string][]byte{"pki/ca.key": []byte("rotated")}
		if err := second.SaveFiles(ctx, two); err != nil {
			t.Fatal(err)
		}
		has("others, by another process", 2, 2, two)
		if err := second.CheckFiles(ctx, 1); !errors.Is(err, kine.ErrFilesNewer) {
			t.Errorf("a process with older files continues: %v", err)
		}
		if err := first.SaveFiles(ctx, one); err == nil {
			t.Error("a process whose store was taken over saved files")
		}
		has("after that", 2, 2, two)

		// A process that was stopped before it opened the store doesn't take it over from one that has opened it since.
		late := *p.server
		late.Expected = &epoch
		if _, err := kine.Open(ctx, kine.Options{Name: "demo", Path: p.elsewhere(t).path, Server: &late}); !errors.Is(err, kine.ErrTakenOver) {
			t.Errorf("it was opened late: %v", err)
		}
		create(t, second, "/registry/undisturbed", "1")
		epoch = second.Epoch()
		third, err := kine.Open(ctx, kine.Options{Name: "demo", Path: p.elsewhere(t).path, Server: &late})
		if err != nil {
			t.Fatal(err)
		}
		closeStore(t, third)
		if err := kine.SaveFiles(ctx, "demo", *p.server, one); err != nil {
			t.Fatal(err)
		}
		has("saved where there are some", 4, 2, two)
		other := *p.server
		other.ID = "other"
		if _, _, err := kine.ReadFiles(ctx, "demo", other); !errors.Is(err, kine.ErrOtherSpace) {
			t.Errorf("another space reads the files: %v", err)
		}
		if err := kine.DropServer(ctx, "demo", *p.server); err != nil {
			t.Fatal(err)
		}
		has("dropped", 0, 0, nil)
	})
}

// D1, D5: a process that has restored a snapshot into a database opens it, unless another one has opened it since.
func TestARestoredDatabaseIsThatOfWhoHasItNow(t *testing.T) {
	onServers(t, func(t *testing.T, p place) {
		before := p.open(t)
		create(t, before, "/registry/a", "1")
		snapshot := snapshotOf(t, before)
		closeStore(t, before)
		restore := func() (server kine.Server) {
			t.Helper()
			server = *p.server
			epoch, err := kine.RestoreServer(t.Context(), snapshot, "demo", server)
			if err != nil {
				t.Fatal(err)
			}
			server.Expected = &epoch
			return server
		}
		server := restore()
		own, err := kine.Open(t.Context(), kine.Options{Name: "demo", Path: p.elsewhere(t).path, Server: &server})
		if err != nil {
			t.Fatal(err)
		}
		closeStore(t, own)
		server = restore()
		other := p.elsewhere(t).open(t)
		if late, err := kine.Open(t.Context(), kine.Options{Name: "demo", Path: p.elsewhere(t).path, Server: &server}); !errors.Is(err, kine.ErrTakenOver) {
			t.Errorf("it was opened late: %v, %v", late, err)
		}
		create(t, other, "/registry/undisturbed", "1")
	})
}

// T8: a store that is used, and was taken over, finds that within seconds also if nothing is written, and no connection is new.
func TestAStoreChecksWhoHasIt(t *testing.T) {
	onServers(t, func(t *testing.T, p place) {
		s := p.open(t)
		create(t, s, "/registry/a", "1")
		p.advance(t) // as another process, whose end of this one's sessions is not noticed yet
		if value(t, s, "/registry/a") != "1" {
			t.Fatal("the value is another one")
		}
		until(t, func() bool { _, err := s.Stats(t.Context()); return errors.Is(err, kine.ErrTakenOver) })
	})
}

// S3, L3: whoever has taken over the process of a space, and so may write its database, can't have another process read files of any size.
func TestHostileFilesInADatabaseAreBounded(t *testing.T) {
	onServers(t, func(t *testing.T, p place) {
		bytesOf := map[kine.ServerType]string{kine.PostgreSQL: "CAST(REPEAT('x', %d) AS BYTEA)", kine.MySQL: "REPEAT('x', %d)"}[p.server.Type]
		if bytesOf == "" {
			t.Skip("the server limits the size of a value")
		}
		store := p.open(t)
		if err := store.SaveFiles(t.Context(), map[string][]byte{"node.key": []byte("key")}); err != nil {
			t.Fatal(err)
		}
		refused := func(what string) {
			t.Helper()
			if files, _, err := kine.ReadFiles(t.Context(), "demo", *p.server); err == nil {
				t.Errorf("%s: %d files were read", what, len(files.Data))
			}
		}
		p.exec(t, "INSERT INTO berth_files (name, data) VALUES ('large', "+fmt.Sprintf(bytesOf, 3*dbms.MaxFiles)+")")
		refused("a large file")
		p.exec(t, "DELETE FROM berth_files WHERE name = 'large'")
		for i := range 10 {
			p.exec(t, fmt.Sprintf("INSERT INTO berth_files (name, data) VALUES ('part-%d', "+bytesOf+")", i, dbms.MaxFiles/4))
		}
		refused("many files")
	})
}

// D3: a tenant who has the role of a space makes the server send much, or stands in the way of a deletion.
func TestHostileAnOwnerInADatabaseIsBounded(t *testing.T) {
	onServers(t, func(t *testing.T, p place) {
		change := map[kine.ServerType][]string{
			kine.PostgreSQL: {"ALTER TABLE berth_owner ALTER epoch TYPE text", "UPDATE berth_owner SET epoch = repeat('1', 100000000)", "ALTER TABLE berth_owner ALTER epoch TYPE bigint USING 7"},
			kine.MySQL:      {"ALTER TABLE berth_owner MODIFY epoch LONGTEXT", "UPDATE berth_owner SET epoch = REPEAT('1', 8000000)", "ALTER TABLE berth_owner MODIFY epoch BIGINT"},
		}[p.server.Type]
		if change == nil {
			t.Skip("the server limits the size of a value")
		}
		store := p.open(t)
		if err := store.SaveFiles(t.Context(), map[string][]byte{"node.key": []byte("key")}); err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		for _, statement := range change[:2] {
			p.exec(t, statement)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, readErr := kine.ReadFiles(t.Context(), "demo", *p.server)
		dropErr := kine.DropServer(t.Context(), "demo", *p.server)
		runtime.ReadMemStats(&after)
		for what, err := range map[string]error{"read the files": readErr, "delete the tables": dropErr} {
			if err == nil || len(err.Error()) > 4096 {
				t.Errorf("%s: an error of %d bytes", what, len(fmt.Sprint(err)))
			}
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 64 {
			t.Errorf("it took %d MiB of memory", took)
		}
		if p.server.Type == kine.MySQL {
			p.exec(t, "UPDATE berth_owner SET epoch = '7'")
		}
		p.exec(t, change[2])
		p.exec(t, "CREATE VIEW mine AS SELECT * FROM kine")
		if err := kine.DropServer(t.Context(), "demo", *p.server); err != nil {
			t.Errorf("delete the tables of a view: %v", err)
		}
	})
}
