// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/kine/mirror"
)

const (
	// txnBytes and txnOps limit a transaction. An etcd server allows 1.5 MiB and 128 operations by default, one of which is that
	// of meta.
	txnBytes = 3 << 19
	txnOps   = 127
	// opOverhead is about how many bytes an operation has beside its key and value; reserved are those of meta and of the
	// transaction.
	opOverhead, reserved = 128, 4 << 10
	// pageBytes is about how many bytes are read at once, and firstRows and pageRows how many rows at first and at most.
	pageBytes, firstRows, pageRows = 4 << 20, 16, 1000
)

// CheckSize fails if a row doesn't fit in a transaction.
func (l *Log) CheckSize(r *mirror.Row) error {
	n, limit := len(r.Key)+len(r.Value), txnBytes-reserved-opOverhead-len(l.target.prefix)
	if n > limit {
		return fmt.Errorf("%w: they have %d bytes, and may have %d", mirror.ErrTooLarge, n, limit)
	}
	return nil
}

// Append writes changes, as many in a transaction as etcd allows.
func (l *Log) Append(ctx context.Context, rows []mirror.Row) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := batch{log: l, prefix: l.rowsOf(l.meta.Generation), revision: true}
	for i := range rows {
		if err := b.add(ctx, &rows[i]); err != nil {
			return err
		}
	}
	return b.write(ctx)
}

// batch collects changes for a transaction, which has the last change of each key.
type batch struct {
	log      *Log
	prefix   string
	revision bool // write the revision of the last change, too

	ops     []clientv3.Op
	of      map[string]int // the operation of each key
	bytes   int
	last    int64
	written bool // a transaction was written
}

func (b *batch) add(ctx context.Context, r *mirror.Row) error {
	size := len(b.prefix) + len(r.Key) + len(r.Value) + opOverhead
	if len(b.ops) == txnOps || len(b.ops) > 0 && b.bytes+size > txnBytes-reserved {
		if err := b.write(ctx); err != nil {
			return err
		}
	}
	op := clientv3.OpDelete(b.prefix + r.Key)
	if !r.Deleted {
		op = clientv3.OpPut(b.prefix+r.Key, string(r.Encode()))
	}
	if b.of == nil {
		b.of = map[string]int{}
	}
	if i, has := b.of[r.Key]; has {
		b.ops[i] = op
	} else {
		b.of[r.Key] = len(b.ops)
		b.ops = append(b.ops, op)
	}
	b.bytes, b.last = b.bytes+size, r.Revision
	return nil
}

func (b *batch) write(ctx context.Context) error {
	if len(b.ops) == 0 {
		return nil
	}
	err := b.log.change(ctx, func(m *mirror.Meta) {
		if b.revision {
			m.Revision = b.last
		}
	}, b.ops...)
	if err != nil && b.written && b.revision && b.log.lost == nil {
		// The changes have taken effect up to here.
		b.log.lost = err
		err = &lostError{err}
	}
	b.ops, b.of, b.bytes, b.written = nil, nil, 0, true
	return err
}

// Advance increases the revision.
func (l *Log) Advance(ctx context.Context, revision int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.change(ctx, func(m *mirror.Meta) { m.Revision = revision })
}

// Replace writes rows as the next generation, which one transaction makes the current one.
func (l *Log) Replace(ctx context.Context, revision int64, write func(put func(mirror.Row) error) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.meta.Generation + 1
	b := batch{log: l, prefix: l.rowsOf(next)}
	err := write(func(r mirror.Row) error {
		if err := l.CheckSize(&r); err != nil {
			return fmt.Errorf("%s: %w", r.Key, err)
		}
		return b.add(ctx, &r)
	})
	if err == nil {
		err = b.write(ctx)
	}
	if err != nil {
		return err
	}
	if err := l.change(ctx, func(m *mirror.Meta) { m.Generation, m.Revision = next, revision }); err != nil {
		return err
	}
	return l.clean(ctx)
}

// Rows passes the current rows, page by page, all at one revision of etcd. It fails if etcd was compacted meanwhile, which only
// happens if that takes minutes.
func (l *Log) Rows(ctx context.Context, pass func(mirror.Row) error) (mirror.State, error) {
	resp, err := l.get(ctx, l.metaKey())
	if err != nil || len(resp.Kvs) == 0 {
		return mirror.State{}, err
	}
	m, _, err := l.decode(resp.Kvs[0])
	if err != nil {
		return mirror.State{}, err
	}
	prefix := l.rowsOf(m.Generation)
	from, end, limit := prefix, clientv3.GetPrefixRangeEnd(prefix), int64(firstRows)
	for {
		page, err := l.get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(resp.Header.Revision))
		if code, _ := codeOf(err); code == codes.ResourceExhausted && limit > 1 {
			limit = max(1, limit/8) // the rows are larger than those before
			continue
		}
		if err != nil {
			return mirror.State{}, err
		}
		size := 0
		for _, kv := range page.Kvs {
			size += len(kv.Key) + len(kv.Value)
			r, err := mirror.Decode(strings.TrimPrefix(string(kv.Key), prefix), kv.Value, m.Revision)
			if err == nil {
				err = pass(r)
			}
			if err != nil {
				return mirror.State{}, err
			}
			from = string(kv.Key) + "\x00"
		}
		if !page.More {
			return m.State(), nil
		}
		limit = max(1, min(pageRows, 2*limit, pageBytes*int64(len(page.Kvs))/int64(max(1, size))))
	}
}

// Drop deletes everything, and meta at last.
func (l *Log) Drop(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, err := l.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(l.metaKey()), "=", l.at)).Then(
		clientv3.OpDelete(l.target.prefix+"rows/", clientv3.WithPrefix()),
		clientv3.OpDelete(l.target.prefix+"files/", clientv3.WithPrefix()),
		clientv3.OpDelete(l.metaKey())).Commit()
	if err != nil {
		return &callError{err}
	}
	if !resp.Succeeded {
		err = l.change(ctx, func(*mirror.Meta) {}) // which says why
		if err == nil {
			err = errors.New("the state has changed")
		}
	}
	return err
}
