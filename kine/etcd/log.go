// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
	"github.com/berth-dev/berth/kine/sqlite"
)

// attempts is how often a change of meta is tried when other processes change it.
const attempts = 10

// Log keeps the rows of a store in etcd.
type Log struct {
	target *target
	owner  dbms.Owner

	connecting sync.Mutex
	connected  *clientv3.Client
	closed     bool

	// mu is held while something is written. meta is what this process has last written, at the revision at of etcd. lost means
	// that it may have written more.
	mu   sync.Mutex
	meta mirror.Meta
	at   int64
	lost error
}

var _ mirror.Log = (*Log)(nil)

// New returns the log of a space. It connects to nothing.
func New(c mirror.Config, owner dbms.Owner) (*Log, error) {
	t, err := parse(c)
	if err != nil {
		return nil, err
	}
	return &Log{target: t, owner: owner}, nil
}

func (l *Log) String() string { return l.target.String() }

func (l *Log) metaKey() string { return l.target.prefix + "meta" }

func (l *Log) rowsOf(generation int64) string {
	return l.target.prefix + "rows/" + strconv.FormatInt(generation, 10) + "/"
}

func (l *Log) filesOf(set int64) string {
	return l.target.prefix + "files/" + strconv.FormatInt(set, 10) + "/"
}

// get reads keys. A client that was released meanwhile is replaced.
func (l *Log) get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for {
		c, err := l.client()
		if err != nil {
			return nil, err
		}
		resp, err := c.Get(limited, key, options...)
		switch {
		case err == nil:
			return resp, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case limited.Err() != nil || c.Ctx().Err() == nil:
			return nil, &callError{err}
		}
	}
}

// State returns the state in etcd.
func (l *Log) State(ctx context.Context) (mirror.State, error) {
	m, _, err := l.read(ctx)
	return m.State(), err
}

// Epoch returns the epoch in etcd; 0 if there is none.
func (l *Log) Epoch(ctx context.Context) (int64, error) {
	m, _, err := l.read(ctx)
	return m.Epoch, err
}

// read returns meta, and the revision of etcd at which it was written; zeros if there is none.
func (l *Log) read(ctx context.Context) (m mirror.Meta, at int64, err error) {
	resp, err := l.get(ctx, l.metaKey())
	if err != nil || len(resp.Kvs) == 0 {
		return mirror.Meta{}, 0, err
	}
	return l.decode(resp.Kvs[0])
}

func (l *Log) decode(kv *mvccpb.KeyValue) (m mirror.Meta, at int64, err error) {
	if err := json.Unmarshal(kv.Value, &m); err != nil || m.Epoch <= 0 || m.Revision < 0 {
		return mirror.Meta{}, 0, fmt.Errorf("%w: the key %s is of another program; use a prefix of its own for each space", sqlite.ErrNotStore, l.metaKey())
	}
	return m, kv.ModRevision, m.State().Owner.CheckIs(l.owner)
}

// TakeOver makes this process the one that writes.
func (l *Log) TakeOver(ctx context.Context, expected *int64) (before mirror.State, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range attempts {
		m, at, err := l.read(ctx)
		if err != nil {
			return mirror.State{}, err
		}
		if err := m.CheckExpected(l.String(), expected); err != nil {
			return mirror.State{}, err
		}
		if at == 0 {
			if err := l.checkFree(ctx); err != nil {
				return mirror.State{}, err
			}
		}
		next := m
		next.Space, next.ID, next.Epoch = l.owner.Space, l.owner.ID, m.Epoch+1
		done, err := l.swap(ctx, at, next, nil)
		if err != nil {
			return mirror.State{}, err
		}
		if done {
			l.lost = nil
			return m.State(), l.clean(ctx)
		}
	}
	return mirror.State{}, errors.New("other processes take the store over all the time")
}

// checkFree fails if there are keys of something else.
func (l *Log) checkFree(ctx context.Context) error {
	resp, err := l.get(ctx, l.target.prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err == nil && len(resp.Kvs) > 0 {
		err = fmt.Errorf("%w: there are keys of another program; use a prefix of its own for each space", sqlite.ErrNotStore)
	}
	return err
}

// clean deletes what a process has left that ended in the middle of replacing rows or files.
func (l *Log) clean(ctx context.Context) error {
	rows, files := l.target.prefix+"rows/", l.target.prefix+"files/"
	return l.change(ctx, func(*mirror.Meta) {}, append(
		others(rows, l.rowsOf(l.meta.Generation)), others(files, l.filesOf(l.meta.FilesSet))...)...)
}

// others deletes the keys with a prefix, but not those with another one that begins with it.
func others(all, kept string) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpDelete(all, clientv3.WithRange(kept)),
		clientv3.OpDelete(clientv3.GetPrefixRangeEnd(kept), clientv3.WithRange(clientv3.GetPrefixRangeEnd(all))),
	}
}

// Reconnect connects again, and makes sure that nothing of the earlier connection can take effect any more.
func (l *Log) Reconnect(ctx context.Context) (mirror.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Release(); err != nil {
		return mirror.State{}, err
	}
	for range attempts {
		m, at, err := l.read(ctx)
		if err != nil {
			return mirror.State{}, err
		}
		if err := m.CheckEpoch(l.String(), l.meta.Epoch); err != nil {
			return mirror.State{}, err
		}
		done, err := l.swap(ctx, at, m, nil) // from now on, at is another revision
		if err != nil {
			return mirror.State{}, err
		}
		if done {
			l.lost = nil
			return m.State(), nil
		}
	}
	return mirror.State{}, &lostError{errors.New("the state changes all the time")}
}

// change changes meta and keys, if no other process has changed meta. The caller has mu.
func (l *Log) change(ctx context.Context, set func(*mirror.Meta), ops ...clientv3.Op) error {
	if l.lost != nil {
		return &lostError{l.lost}
	}
	next := l.meta
	set(&next)
	done, err := l.swap(ctx, l.at, next, ops)
	if err != nil {
		if l.Fault(err) == dbms.Lost {
			l.lost = err
		}
		return err
	}
	if done {
		return nil
	}
	l.lost = errors.New("another connection of this process has changed the state")
	m, _, err := l.read(ctx)
	if err == nil {
		err = m.CheckEpoch(l.String(), l.meta.Epoch)
	}
	if err == nil {
		err = &lostError{l.lost}
	}
	return err
}

// swap writes meta and changes keys, if meta was written at a revision of etcd; 0 is none.
func (l *Log) swap(ctx context.Context, at int64, next mirror.Meta, ops []clientv3.Op) (done bool, err error) {
	value, err := json.Marshal(next)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := l.client()
	if err != nil {
		return false, err
	}
	resp, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(l.metaKey()), "=", at)).
		Then(append(ops, clientv3.OpPut(l.metaKey(), string(value)))...).Commit()
	if err != nil {
		if ctx.Err() != nil || c.Ctx().Err() != nil {
			return false, &lostError{err} // whatever the client says
		}
		return false, &callError{err}
	}
	if resp.Succeeded {
		l.meta, l.at = next, resp.Header.Revision
	}
	return resp.Succeeded, nil
}
