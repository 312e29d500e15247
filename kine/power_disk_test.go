// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// Kinds of records, as testdata/record.c writes them.
const (
	created = iota + 1
	written
	truncated
	synced
	unlinked
	directorySynced
)

// recordHead is the size of what precedes a record's path and data.
const recordHead = 24

// record is what a process did to a file of its store.
type record struct {
	kind   uint32
	path   string
	offset int64
	data   []byte
	end    int64 // of the record in the journal
}

// records reads a journal, up to the record that a kill cut off.
func records(journal []byte) (all []record) {
	for at := 0; at+recordHead <= len(journal); {
		head := journal[at:]
		path, data := int(binary.NativeEndian.Uint32(head[4:])), int(binary.NativeEndian.Uint32(head[8:]))
		if len(head) < recordHead+path+data {
			break
		}
		at += recordHead + path + data
		all = append(all, record{
			kind: binary.NativeEndian.Uint32(head), offset: int64(binary.NativeEndian.Uint64(head[16:])),
			path: string(head[recordHead : recordHead+path]), data: head[recordHead+path : recordHead+path+data], end: int64(at),
		})
	}
	return all
}

// disk is what is certain and what is not of files that a process writes.
type disk struct {
	names   map[string]*diskFile // as the process sees them
	certain map[string]*diskFile // as the directory was last synced
}

type diskFile struct {
	certain []byte
	pending []record // since the last sync, in their order
}

// newDisk is a disk that has these files for certain.
func newDisk(files map[string][]byte) *disk {
	d := &disk{names: map[string]*diskFile{}, certain: map[string]*diskFile{}}
	for path, content := range files {
		d.names[path] = &diskFile{certain: append([]byte(nil), content...)}
	}
	maps.Copy(d.certain, d.names)
	return d
}

func (d *disk) do(r record) {
	f := d.names[r.path]
	switch {
	case r.kind == directorySynced:
		d.certain = maps.Clone(d.names)
	case r.kind == created || f == nil && r.kind != unlinked:
		d.names[r.path] = &diskFile{}
		if r.kind != created {
			d.do(r)
		}
	case r.kind == unlinked:
		delete(d.names, r.path)
	case r.kind == synced:
		for _, p := range f.pending {
			f.certain = p.apply(f.certain)
		}
		f.pending = nil
	default:
		f.pending = append(f.pending, r)
	}
}

func (r record) apply(content []byte) []byte {
	if r.kind == truncated {
		if grown := r.offset - int64(len(content)); grown > 0 {
			return append(content, make([]byte, grown)...)
		}
		return content[:r.offset]
	}
	if grown := r.offset + int64(len(r.data)) - int64(len(content)); grown > 0 {
		content = append(content, make([]byte, grown)...)
	}
	copy(content[r.offset:], r.data)
	return content
}

// sector is what a disk writes whole or not at all.
const sector = 512

// fail puts into dir, under the files' own names, what a disk may hold after the power has failed: what is certain and, of
// the rest, nothing without random, else any of it, in parts of whole sectors.
func (d *disk) fail(t *testing.T, dir string, random *rand.Rand) {
	t.Helper()
	names := d.certain
	if random != nil && random.IntN(2) == 0 {
		names = d.names
	}
	for path, f := range names {
		content := append([]byte(nil), f.certain...)
		for _, r := range f.pending {
			if random == nil || random.IntN(2) == 0 {
				continue
			}
			if sectors := len(r.data) / sector; sectors > 0 && random.IntN(4) == 0 {
				r.data = r.data[:sector*random.IntN(sectors+1)]
			}
			if r.kind == truncated || len(r.data) > 0 {
				content = r.apply(content)
			}
		}
		write(t, filepath.Join(dir, filepath.Base(path)), content)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
}
