// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
)

// maxRow is how many bytes a key and its value may have.
const maxRow = 3 << 19

// change is a record that isn't in the bucket yet.
type change struct {
	key   string
	data  []byte
	next  position
	known time.Time // when the record before it was surely the last one
}

// prepare returns the record with a state, and with rows, after the end of a log.
func (l *Log) prepare(end position, next record, rows []byte) (*change, error) {
	next.Number, next.Nonce, next.Written = end.Number+1, rand.Text(), end.Written+int64(len(rows))
	c, err := sharedCodec()
	if err != nil {
		return nil, err
	}
	key := recordKey(end.log, next.Number)
	data, err := c.encode(header{Object: key, Record: &next}, rows)
	return &change{key: key, data: data, next: position{log: end.log, record: next}, known: end.known}, err
}

// write writes a record, and returns the one that has its number then: it is another one if the nonces differ, and the zero record if that was
// replaced by a base. The caller has mu.
func (l *Log) write(ctx context.Context, c *change) (there record, err error) {
	c.next.known = l.now()
	err = l.bucket.create(ctx, c.key, c.data)
	if errors.Is(err, errExists) {
		there, err := l.record(ctx, c.next.log, c.next.Number, 0)
		if errors.Is(err, errMissing) {
			return record{}, nil
		}
		if err != nil {
			return record{}, &lostError{err}
		}
		if there.Nonce != c.next.Nonce {
			return there, nil
		}
	} else if err != nil {
		return record{}, err
	}
	if l.stale(c.known) {
		// Another process may have taken the log over so long ago that the record of the takeover was deleted. Then this one, in its
		// place, has no effect.
		return record{}, &lostError{errors.New("this process was stopped for a long time while it wrote")}
	}
	l.moved(c.next)
	l.wrote = l.now()
	return c.next.record, nil
}

// change appends a record with a state, and with rows, if no other process has appended any. The caller has mu.
func (l *Log) change(ctx context.Context, set func(*record), rows []byte) error {
	if l.lost != nil {
		return &lostError{l.lost}
	}
	own := l.last()
	if err := l.yield(ctx, own.Epoch); err != nil {
		return err
	}
	if l.stale(own.known) {
		end, _, err := l.read(ctx)
		if err == nil {
			err = l.checkSame(own, end)
		}
		if err != nil {
			return err
		}
		own.known = end.known
	}
	next := own.record
	set(&next)
	c, err := l.prepare(own, next, rows)
	if err != nil {
		return err
	}
	there, err := l.write(ctx, c)
	if err != nil {
		if l.Fault(err) == dbms.Lost {
			l.lost = err
		}
		return err
	}
	if there.Nonce == c.next.Nonce {
		return nil
	}
	end, _, err := l.read(ctx)
	if err == nil {
		err = l.checkSame(own, end)
	}
	if err == nil {
		l.lost = errors.New("the log has changed and is again as it was")
		err = &lostError{l.lost}
	}
	return err
}

// checkOwn fails if a log isn't that of this process any more.
func (l *Log) checkOwn(own, end position) error {
	if end.log != own.log {
		return fmt.Errorf("%w: it was deleted, and %s has another log", dbms.ErrFenced, l)
	}
	return end.CheckEpoch(l.String(), own.Epoch)
}

// checkSame fails if a log isn't that of this process any more, or has a record that this process doesn't know. The caller has mu.
func (l *Log) checkSame(own, end position) error {
	if err := l.checkOwn(own, end); err != nil || end.Number == own.Number {
		return err
	}
	l.lost = errors.New("another connection of this process has changed the state")
	return &lostError{l.lost}
}

// CheckSize fails if a row is too large.
func (l *Log) CheckSize(r *mirror.Row) error {
	if n := len(r.Key) + len(r.Value); n > maxRow {
		return fmt.Errorf("%w: they have %d bytes, and may have %d", mirror.ErrTooLarge, n, maxRow)
	}
	return nil
}

// Append writes changes, in one record if that isn't too large.
func (l *Log) Append(ctx context.Context, rows []mirror.Row) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var data []byte
	written := false
	for i := range rows {
		data = appendRow(data, &rows[i])
		if i < len(rows)-1 && len(data) < l.limits.recordBytes {
			continue
		}
		err := l.change(ctx, func(r *record) { r.Revision = rows[i].Revision }, data)
		if err != nil && written && l.lost == nil {
			// The changes have taken effect up to here.
			l.lost = err
			err = &lostError{err}
		}
		if err != nil {
			return err
		}
		data, written = data[:0], true
	}
	return nil
}

// Advance increases the revision.
func (l *Log) Advance(ctx context.Context, revision int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.change(ctx, func(r *record) { r.Revision = revision }, nil)
}
