// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/kine/sqlite"
)

func codec(t testing.TB) *Codec {
	t.Helper()
	c, err := NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func rowsFrom(first int64) []sqlite.Row {
	return []sqlite.Row{
		{ID: first, Name: "/registry/configmaps/default/a", Created: true, Value: []byte("one")},
		{ID: first + 1, Name: "/registry/configmaps/default/a", CreateRevision: first, PrevRevision: first, Lease: 7, Value: []byte{}},
		{ID: first + 2, Name: "/registry/configmaps/default/a", Deleted: true, CreateRevision: first, PrevRevision: first + 1},
	}
}

func TestASegmentHasItsRows(t *testing.T) {
	c := codec(t)
	wrote := Header{Space: "demo", Stream: "s", Previous: "0123456789abcdef", Time: time.Unix(5, 0).UTC()}
	object, err := c.Encode(wrote, rowsFrom(40))
	if err != nil {
		t.Fatal(err)
	}
	read, rows, err := c.Decode(object)
	if err != nil {
		t.Fatal(err)
	}
	wrote.Version, wrote.First, wrote.Last = 1, 40, 42
	if read != wrote {
		t.Errorf("read the header %+v, wrote %+v", read, wrote)
	}
	if diff := cmp.Diff(rowsFrom(40), rows); diff != "" {
		t.Error(diff)
	}
}

func TestHostileASegmentIsRefused(t *testing.T) {
	c := codec(t)
	gap := rowsFrom(40)
	gap[2].ID = 50
	withGap, err := c.Encode(Header{}, gap)
	if err != nil {
		t.Fatal(err)
	}
	sound, err := c.Encode(Header{}, rowsFrom(40))
	if err != nil {
		t.Fatal(err)
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var tiny []sqlite.Row
	for i := range int64(RowBytes/64 + 2) {
		tiny = append(tiny, sqlite.Row{ID: i + 1})
	}
	tooMany, err := c.Encode(Header{}, tiny)
	if err != nil {
		t.Fatal(err)
	}
	for reason, object := range map[string][]byte{
		"empty":                     nil,
		"cut off":                   sound[:len(sound)-5],
		"not compressed":            []byte("rows"),
		"compressed nothing":        encoder.EncodeAll(nil, nil),
		"a row is missing":          withGap,
		"rows that take memory":     tooMany,
		"expands to more than fits": encoder.EncodeAll(make([]byte, MaxBytes+1<<20), nil),
	} {
		if _, _, err := c.Decode(object); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: got %v", reason, err)
		}
	}
	for i := range sound {
		changed := bytes.Clone(sound)
		changed[i] ^= 0x40
		if h, rows, err := c.Decode(changed); err == nil && (h.First != 40 || cmp.Diff(rowsFrom(40), rows) != "") {
			t.Fatalf("accepted a change of byte %d", i)
		}
	}
}

func TestADigestTellsRowsApart(t *testing.T) {
	rows := rowsFrom(1)
	seen := map[string]bool{}
	for i := range rows {
		seen[Digest(&rows[i])] = true
	}
	null := rows[1]
	null.Value = nil
	seen[Digest(&null)] = true
	if len(seen) != 4 {
		t.Errorf("4 rows have %d digests", len(seen))
	}
}

func FuzzDecode(f *testing.F) {
	c := codec(f)
	sound, err := c.Encode(Header{Space: "demo"}, rowsFrom(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sound)
	f.Fuzz(func(t *testing.T, object []byte) {
		h, rows, err := c.Decode(object)
		if err != nil {
			return
		}
		again, err := c.Encode(h, rows)
		if err != nil {
			t.Fatal(err)
		}
		if _, same, err := c.Decode(again); err != nil || cmp.Diff(rows, same) != "" {
			t.Fatalf("%v: %s", err, cmp.Diff(rows, same))
		}
	})
}
