// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/kine/sqlite"
	"github.com/berth-dev/berth/snapshot/segment"
)

// Copied is a copy of a store in a file that nobody has open.
type Copied struct {
	Path string
	// Revision and Row are of the last row, and Row is its digest.
	Revision int64
	Row      string
	// Elsewhere means that a process on another machine sent the copy. If somebody has taken over that process, the file may be anything, and
	// nothing here opens it.
	Elsewhere bool
}

// OpenCopied returns a copy that may be opened.
func OpenCopied(ctx context.Context, path string) (Copied, error) {
	last, err := sqlite.LastRow(ctx, path)
	return Copied{Path: path, Revision: last.ID, Row: segment.Digest(&last)}, err
}

// PutBase stores a copy of a store, and the files that identify the space in dir. It writes the archive to scratch first, which may take as much
// space as the copy.
func (r *Replica) PutBase(ctx context.Context, s Stream, store Copied, dir, scratch string, now time.Time) (base Base, err error) {
	base = Base{Stream: s, Revision: store.Revision, Row: store.Row, Elsewhere: store.Elsewhere}
	if base.Identity, err = IdentityDigest(dir); err != nil {
		return Base{}, err
	}
	archive, err := os.OpenFile(filepath.Join(scratch, "archive"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Base{}, err
	}
	defer archive.Close()
	if err := pack(ctx, archive, ID{Space: r.space, Time: now.UTC()}, store.Path, dir, store.Elsewhere); err != nil {
		return Base{}, err
	}
	if base.Bytes, err = archive.Seek(0, 1); err != nil {
		return Base{}, err
	}
	if _, err := archive.Seek(0, 0); err != nil {
		return Base{}, err
	}
	return base, r.bucket.put(ctx, r.key(base.name()), archive, base.Bytes)
}

// IdentityDigest identifies the contents of the files in dir that identify a space.
func IdentityDigest(dir string) (string, error) {
	hash := sha256.New()
	for _, root := range identityFiles {
		err := filepath.WalkDir(filepath.Join(dir, root), func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(hash, "%s %d\n%s", path[len(dir):], len(data), data)
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:8]), nil
}

// newest returns the stream and the base from which a space is restored.
func (r *Replica) newest(ctx context.Context, id ID) (*History, *Base, error) {
	histories, err := r.Histories(ctx)
	if err != nil {
		return nil, nil, err
	}
	h, ok := latestOf(histories, id.Store)
	if !ok {
		return nil, nil, errNotThere
	}
	base := h.Base()
	if id.Until != 0 {
		base = nil
		for i := range h.Bases {
			if h.Bases[i].Revision <= id.Until {
				base = &h.Bases[i]
			}
		}
		if base == nil {
			return nil, nil, fmt.Errorf("the replica begins at revision %d, after %d; choose a later revision, or a snapshot", h.Bases[0].Revision, id.Until)
		}
	}
	return h, base, nil
}

// fetch writes the files of a replica into dir, which must be empty.
func (r *Replica) fetch(ctx context.Context, id ID, dir string, trusted bool) (*manifest, error) {
	at, m, err := r.fetchBase(ctx, id, dir)
	if err != nil {
		return nil, err
	}
	if at.trusted = trusted; m.Elsewhere && !trusted { // before it is opened
		return nil, ErrElsewhere
	}
	path := filepath.Join(dir, storeFile)
	if err := at.check(ctx, path); err != nil {
		return nil, err
	}
	err = kine.Replay(ctx, path, func(add func([]sqlite.Row) error) error { return at.run(ctx, id, add) })
	if err == nil && at.history.Stream.Moves > 0 {
		err = writeMoves(dir, at.history.Stream.Moves)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// fetchBase writes the files of the base of a replica into dir. The store in it has not been opened or checked.
func (r *Replica) fetchBase(ctx context.Context, id ID, dir string) (*replay, *manifest, error) {
	h, base, err := r.newest(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	codec, err := segment.NewCodec()
	if err != nil {
		return nil, nil, err
	}
	m, err := r.unpackBase(ctx, base, dir)
	if err != nil {
		return nil, nil, fmt.Errorf("object %s: %w", r.key(base.name()), err)
	}
	return &replay{replica: r, history: h, base: base, codec: codec, revision: base.Revision, row: base.Row}, m, nil
}

func (r *Replica) unpackBase(ctx context.Context, base *Base, dir string) (*manifest, error) {
	archive, err := r.bucket.get(ctx, r.key(base.name()))
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	m, err := unpack(archive, dir)
	if err == nil && m.Space != r.space {
		err = fmt.Errorf("%w: it is one of space %s; somebody has moved it", ErrDamaged, m.Space)
	}
	return m, err
}

// replay appends the rows of segments to a base.
type replay struct {
	replica  *Replica
	history  *History
	base     *Base
	codec    *segment.Codec
	revision int64  // of the last row
	row      string // its digest
	// trusted means that the rows may be from a pod.
	trusted bool
}

// check checks the store of the base before it is used.
func (p *replay) check(ctx context.Context, path string) error {
	object := p.replica.key(p.base.name())
	if err := sqlite.CheckWhole(ctx, path, "quick_check"); err != nil { // before it is read
		return fmt.Errorf("object %s: %w", object, err)
	}
	last, err := sqlite.LastRow(ctx, path)
	if err != nil {
		return fmt.Errorf("object %s: %w", object, err)
	}
	if last.ID != p.base.Revision || segment.Digest(&last) != p.base.Row {
		return fmt.Errorf("object %s: %w: it has another revision than its name", object, ErrDamaged)
	}
	return nil
}

// run appends the rows until a revision, if id has one.
func (p *replay) run(ctx context.Context, id ID, add func([]sqlite.Row) error) error {
	segments := p.history.Segments
	begin := 0
	for i, s := range segments {
		if s.First <= p.revision+1 {
			begin = i
		}
	}
	for _, s := range segments[min(begin, len(segments)):] {
		if id.Until != 0 && p.revision >= id.Until {
			return nil
		}
		rows, err := p.next(ctx, s)
		if err == nil {
			for len(rows) > 0 && id.Until != 0 && rows[len(rows)-1].ID > id.Until {
				rows = rows[:len(rows)-1]
			}
			if len(rows) > 0 {
				p.revision, p.row = rows[len(rows)-1].ID, segment.Digest(&rows[len(rows)-1])
			}
			err = add(rows)
		}
		if errors.Is(err, segment.ErrDamaged) {
			good := id
			good.Until = p.revision
			return fmt.Errorf("%w: object %s of the replica: %w; everything before it is sound: to restore that, name %s", ErrDamaged,
				p.replica.key(segmentName(p.history.Stream, s.First)), err, good)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// next returns the rows of a segment that come after those that are there.
func (p *replay) next(ctx context.Context, s Segment) ([]sqlite.Row, error) {
	if s.First > p.revision+1 {
		return nil, fmt.Errorf("%w: the rows from revision %d to %d are missing before it", segment.ErrDamaged, p.revision+1, s.First-1)
	}
	data, err := p.replica.Rows(ctx, p.history.Stream, s.First)
	if err != nil {
		return nil, err
	}
	h, rows, err := p.codec.Decode(data)
	if err != nil {
		return nil, err
	}
	if h.Space != p.replica.space || h.Stream != p.history.Stream.String() || h.First != s.First {
		return nil, fmt.Errorf("%w: it is that of space %s, stream %s, revision %d; somebody has moved it", segment.ErrDamaged, h.Space, h.Stream, h.First)
	}
	if h.Elsewhere && !p.trusted {
		return nil, ErrElsewhere
	}
	before := h.Previous
	if s.First <= p.revision { // the base has some of the rows
		had := min(p.revision-s.First+1, int64(len(rows)))
		before = segment.Digest(&rows[had-1])
		if rows[had-1].ID < p.revision {
			return nil, nil // and all of them; the next one has more
		}
		rows = rows[had:]
	}
	if before != p.row {
		return nil, fmt.Errorf("%w: it doesn't follow on revision %d as it is there", segment.ErrDamaged, p.revision)
	}
	return rows, nil
}
