// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
	"github.com/berth-dev/berth/kine/sqlite"
)

// partBytes is how large a part of the files is.
const partBytes = 1 << 20

// Files returns the saved files, and the state, of one moment.
func (l *Log) Files(ctx context.Context) (dbms.Files, mirror.State, error) {
	resp, err := l.get(ctx, l.metaKey())
	if err != nil || len(resp.Kvs) == 0 {
		return dbms.Files{}, mirror.State{}, err
	}
	m, _, err := l.decode(resp.Kvs[0])
	if err != nil || m.FilesEpoch == 0 {
		return dbms.Files{}, m.State(), err
	}
	var text []byte
	for part := range m.FilesParts {
		key := l.filesOf(m.FilesSet) + strconv.Itoa(part)
		page, err := l.get(ctx, key, clientv3.WithRev(resp.Header.Revision))
		if err != nil {
			return dbms.Files{}, mirror.State{}, err
		}
		if len(page.Kvs) == 0 || len(text) > 2*dbms.MaxFiles {
			return dbms.Files{}, mirror.State{}, fmt.Errorf("%w: the files of the space lack the key %s", sqlite.ErrDamaged, key)
		}
		text = append(text, page.Kvs[0].Value...)
	}
	data, err := dbms.DecodeFiles(text)
	if err != nil {
		return dbms.Files{}, mirror.State{}, fmt.Errorf("%w: %w", sqlite.ErrDamaged, err)
	}
	return dbms.Files{Epoch: m.FilesEpoch, Data: data}, m.State(), nil
}

// SaveFiles writes files as the next set, which one transaction makes the current one.
func (l *Log) SaveFiles(ctx context.Context, data map[string][]byte) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before, next, parts := l.meta.FilesSet, l.meta.FilesSet+1, 0
	for part := range slices.Chunk(text, partBytes) {
		if err := l.change(ctx, func(*mirror.Meta) {}, clientv3.OpPut(l.filesOf(next)+strconv.Itoa(parts), string(part))); err != nil {
			return err
		}
		parts++
	}
	return l.change(ctx, func(m *mirror.Meta) { m.FilesEpoch, m.FilesSet, m.FilesParts = m.Epoch, next, parts },
		clientv3.OpDelete(l.filesOf(before), clientv3.WithPrefix()))
}
