// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
)

func partKey(name string, part int) string { return fmt.Sprintf("%s%s/%08x", baseDir, name, part) }

// upload returns a new name, whose objects are not deleted until done is called with the error of the record that names them. If it is
// unknown whether there is such a record, they are not deleted until Reconnect has found out.
func (l *Log) upload() (name string, done func(naming error)) {
	name = rand.Text()
	l.knowing.Lock()
	defer l.knowing.Unlock()
	l.uploading[name] = true
	return name, func(naming error) {
		l.knowing.Lock()
		defer l.knowing.Unlock()
		delete(l.uploading, name)
		if naming != nil && l.Fault(naming) == dbms.Lost {
			l.unsure[name] = true
		}
	}
}

// sure records that it is known what the last record names.
func (l *Log) sure() {
	l.knowing.Lock()
	defer l.knowing.Unlock()
	clear(l.unsure)
}

// baseWriter writes a base, part by part.
type baseWriter struct {
	log  *Log
	ctx  context.Context
	base base
	rows []byte
}

func (w *baseWriter) add(r mirror.Row) error {
	if err := w.log.CheckSize(&r); err != nil {
		return fmt.Errorf("%s: %w", r.Key, err)
	}
	if w.rows = appendRow(w.rows, &r); len(w.rows) < w.log.limits.partBytes {
		return nil
	}
	return w.flush()
}

func (w *baseWriter) flush() error {
	if len(w.rows) == 0 {
		return nil
	}
	c, err := sharedCodec()
	if err != nil {
		return err
	}
	key := partKey(w.base.Name, w.base.Parts)
	data, err := c.encode(header{Object: key}, w.rows)
	if err != nil {
		return err
	}
	if err := w.log.bucket.put(w.ctx, key, data); err != nil {
		return err
	}
	w.base.Parts, w.base.Bytes, w.rows = w.base.Parts+1, w.base.Bytes+int64(len(w.rows)), w.rows[:0]
	return nil
}

// writeBase writes a base of all rows as of a record, or later. No record names it yet.
func (l *Log) writeBase(ctx context.Context, name string, of record, write func(put func(mirror.Row) error) error) (base, error) {
	w := baseWriter{log: l, ctx: ctx, base: base{Name: name, Number: of.Number, Written: of.Written}}
	if err := write(w.add); err != nil {
		return base{}, err
	}
	err := w.flush()
	return w.base, err
}

// Compact returns a base that is due, or just the deletion of what earlier processes have left.
func (l *Log) Compact() func(ctx context.Context, rows func(put func(mirror.Row) error) error) error {
	l.knowing.Lock()
	defer l.knowing.Unlock()
	of, untidy := l.end, l.untidy
	due := of.Number-of.Base.Number >= l.limits.records || of.Written-of.Base.Written > max(l.limits.bytes, of.Base.Bytes)
	switch {
	case of.Number == 0 || of.Number < l.compactAt:
		return nil
	case due:
		l.compactAt = of.Number + l.limits.records/10 // if this fails
		return func(ctx context.Context, rows func(put func(mirror.Row) error) error) error {
			return l.replaceBase(ctx, of, rows)
		}
	case untidy:
		l.compactAt = of.Number + l.limits.records/10
		return func(ctx context.Context, _ func(put func(mirror.Row) error) error) error { return l.clean(ctx) }
	}
	return nil
}

// replaceBase writes another base, while records are appended, and makes it the current one.
func (l *Log) replaceBase(ctx context.Context, of position, rows func(put func(mirror.Row) error) error) error {
	name, done := l.upload()
	var naming error
	defer func() { done(naming) }()
	written, err := l.writeBase(ctx, name, of.record, rows)
	if err != nil {
		return err
	}
	if naming = l.setBase(ctx, of, written); naming != nil {
		return naming
	}
	return l.clean(ctx)
}

func (l *Log) setBase(ctx context.Context, of position, to base) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.last(); now.log != of.log || now.Epoch != of.Epoch || now.Generation != of.Generation || now.Base.Number > of.Number {
		return errors.New("the rows were replaced while a base of them was written")
	}
	return l.change(ctx, func(r *record) { r.Base = to }, nil)
}

// Replace writes a base, which one record makes the current one, of the next generation.
func (l *Log) Replace(ctx context.Context, revision int64, write func(put func(mirror.Row) error) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return &lostError{l.lost}
	}
	name, done := l.upload()
	var naming error
	defer func() { done(naming) }()
	to, err := l.writeBase(ctx, name, l.last().record, write)
	if err != nil {
		return err
	}
	naming = l.change(ctx, func(r *record) { r.Base, r.Generation, r.Revision = to, r.Generation+1, revision }, nil)
	if naming != nil {
		return naming
	}
	if err := l.clean(ctx); errors.Is(err, dbms.ErrFenced) {
		return err
	}
	return nil // what is left is deleted later
}
