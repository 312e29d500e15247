// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
	"github.com/berth-dev/berth/kine/sqlite"
)

// Files returns the saved files, and the state.
func (l *Log) Files(ctx context.Context) (dbms.Files, mirror.State, error) {
	end, _, err := l.read(ctx)
	if err != nil || end.FilesEpoch == 0 {
		return dbms.Files{}, end.State(), err
	}
	key := filesDir + end.Files
	object, err := l.bucket.get(ctx, key, dbms.MaxFiles)
	if errors.Is(err, errMissing) {
		err = l.whyMissing(ctx, end, key)
	}
	if err != nil {
		return dbms.Files{}, mirror.State{}, err
	}
	c, err := sharedCodec()
	if err != nil {
		return dbms.Files{}, mirror.State{}, err
	}
	_, text, err := c.decode(key, object)
	if err == nil && len(text) > 2*dbms.MaxFiles {
		err = fmt.Errorf("%w: the object %s has %d bytes, and may have %d", sqlite.ErrDamaged, key, len(text), 2*dbms.MaxFiles)
	}
	if err != nil {
		return dbms.Files{}, mirror.State{}, err
	}
	data, err := dbms.DecodeFiles(text)
	if err != nil {
		return dbms.Files{}, mirror.State{}, fmt.Errorf("%w: the object %s: %w", sqlite.ErrDamaged, key, err)
	}
	return dbms.Files{Epoch: end.FilesEpoch, Data: data}, end.State(), nil
}

// SaveFiles writes files as an object, which one record makes the current one.
func (l *Log) SaveFiles(ctx context.Context, data map[string][]byte) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	c, err := sharedCodec()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return &lostError{l.lost}
	}
	name, done := l.upload()
	var naming error
	defer func() { done(naming) }()
	before := l.last().Files
	object, err := c.encode(header{Object: filesDir + name}, text)
	if err != nil {
		return err
	}
	if err := l.bucket.put(ctx, filesDir+name, object); err != nil {
		return err
	}
	if naming = l.change(ctx, func(r *record) { r.FilesEpoch, r.Files = r.Epoch, name }, nil); naming != nil {
		return naming
	}
	if before != "" {
		_ = l.bucket.remove(ctx, filesDir+before) // it has no effect, and is deleted with other leftovers otherwise
	}
	return nil
}
