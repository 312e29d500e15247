// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
	"github.com/berth-dev/berth/kine/sqlite"
)

// D3, L3: whoever has the keys of a space may write any objects. Nothing is served then, the error names the object, and reading it
// takes bounded memory.
func TestHostileObjectsAreRefused(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(t *testing.T, l *Log, key string, data []byte) []byte{
		"Huge":          func(*testing.T, *Log, string, []byte) []byte { return make([]byte, maxObject+1) },
		"Bomb":          func(*testing.T, *Log, string, []byte) []byte { return encoder.EncodeAll(make([]byte, 64<<20), nil) },
		"NotCompressed": func(*testing.T, *Log, string, []byte) []byte { return []byte("rows") },
		"CutOff":        func(_ *testing.T, _ *Log, _ string, data []byte) []byte { return data[:len(data)/2] },
		"OfAnotherKey": func(t *testing.T, l *Log, _ string, _ []byte) []byte {
			t.Helper()
			data, err := l.bucket.get(t.Context(), recordKey(l.last().log, 2), 0)
			if err != nil {
				t.Fatal(err)
			}
			return data
		},
		"WrongSum": func(t *testing.T, _ *Log, _ string, data []byte) []byte {
			t.Helper()
			c, err := sharedCodec()
			if err != nil {
				t.Fatal(err)
			}
			plain, err := c.decoder.DecodeAll(data, nil)
			if err != nil {
				t.Fatal(err)
			}
			plain[len(plain)/2] ^= 1
			return encoder.EncodeAll(plain, nil)
		},
		"NoRows": func(t *testing.T, _ *Log, key string, _ []byte) []byte {
			t.Helper()
			c, err := sharedCodec()
			if err != nil {
				t.Fatal(err)
			}
			data, err := c.encode(header{Object: key, Record: &record{Meta: mirror.Meta{Space: "demo", ID: "1", Epoch: 1}, Number: 4}}, []byte("\xff\xff\xff\xff\x7frows"))
			if err != nil {
				t.Fatal(err)
			}
			return data
		},
		"ManyParts": func(t *testing.T, _ *Log, key string, _ []byte) []byte {
			t.Helper()
			c, err := sharedCodec()
			if err != nil {
				t.Fatal(err)
			}
			r := &record{Meta: mirror.Meta{Space: "demo", ID: "1", Epoch: 1}, Number: 4, Base: base{Name: "a", Parts: 2_000_000_000, Number: 1}}
			data, err := c.encode(header{Object: key, Record: r}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return data
		},
		"Gap": func(*testing.T, *Log, string, []byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dsn := newDSN(t)
			l := openLog(t, dsn)
			takeOver(t, l)
			for i := range int64(6) {
				add(t, l, row(i+1, "a", strings.Repeat("x", 100)))
			}
			key := recordKey(l.last().log, 4)
			data, err := l.bucket.get(t.Context(), key, 0)
			if err != nil {
				t.Fatal(err)
			}
			if data = spoil(t, l, key, data); data == nil {
				err = l.bucket.remove(t.Context(), key)
			} else {
				err = l.bucket.put(t.Context(), key, data)
			}
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			_, err = openLog(t, dsn).Rows(t.Context(), func(mirror.Row) error { return nil })
			runtime.ReadMemStats(&after)
			if !errors.Is(err, sqlite.ErrDamaged) || !strings.Contains(err.Error(), key) {
				t.Errorf("rows: %v, want that %s is damaged", err, key)
			}
			if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 128 {
				t.Errorf("it took %d MiB of memory", took)
			}
		})
	}
}

// What another program has stored is left alone.
func TestObjectsOfAnotherProgramAreLeftAlone(t *testing.T) {
	for _, key := range []string{"other", "log/x", storeKey} {
		dsn := newDSN(t)
		l := openLog(t, dsn)
		if err := l.bucket.put(t.Context(), key, []byte("1")); err != nil {
			t.Fatal(err)
		}
		_, err := l.TakeOver(t.Context(), nil)
		mustBe(t, err, sqlite.ErrNotStore)
		if all := keys(t, l); len(all) != 1 {
			t.Errorf("%s: there are %v", key, all)
		}
	}
}

// S3, L3: the saved files are bounded, too.
func TestHostileFilesAreBounded(t *testing.T) {
	l := openLog(t, newDSN(t))
	takeOver(t, l)
	if err := l.SaveFiles(t.Context(), map[string][]byte{"key": []byte("1")}); err != nil {
		t.Fatal(err)
	}
	c, err := sharedCodec()
	if err != nil {
		t.Fatal(err)
	}
	key := filesDir + l.last().Files
	data, err := c.encode(header{Object: key}, bytes.Repeat([]byte(" "), 2*dbms.MaxFiles+1))
	if err == nil {
		err = l.bucket.put(t.Context(), key, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Files(t.Context()); !errors.Is(err, sqlite.ErrDamaged) || !strings.Contains(err.Error(), key) {
		t.Errorf("files: %v", err)
	}
}

// A list that ends early, because its context has ended, is not taken for a short one.
func TestAListThatWasCanceledIsAnError(t *testing.T) {
	l := openLog(t, newDSN(t))
	takeOver(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if objects, err := l.bucket.list(ctx, "", 0); err == nil {
		t.Errorf("%d objects", len(objects))
	}
}

func FuzzDecode(f *testing.F) {
	c, err := newCodec()
	if err != nil {
		f.Fatal(err)
	}
	r := row(1, "a", "1")
	object, err := c.encode(header{Object: "log/L/1", Record: &record{Number: 1}}, appendRow(nil, &r))
	if err != nil {
		f.Fatal(err)
	}
	plain, err := c.decoder.DecodeAll(object, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain)
	f.Fuzz(func(t *testing.T, plain []byte) {
		if h, content, err := c.decode("log/L/1", c.encoder.EncodeAll(plain, nil)); err == nil && (h.Object != "log/L/1" || len(content) > len(plain)) {
			t.Errorf("%+v", h)
		}
		_ = eachRow("log/L/1", plain, 10, func(r mirror.Row) error {
			if r.Revision <= 0 || r.Revision > 10 {
				t.Errorf("revision %d", r.Revision)
			}
			return nil
		})
	})
}
