// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/internal/spacefiles"
	"github.com/berth-dev/berth/internal/storemark"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/vcluster/builtin"
)

// storeFile is the name of the store in the directory of a control plane. Beside a store in a database server, it is one that
// a restore has put there, and that the next start loads into the database.
const storeFile = "store.db"

// cacheFile is the name of the cache of a store in a server of keys and values.
const cacheFile = "cache.db"

// openStore opens the store of the control plane.
func (p *ControlPlane) openStore(ctx context.Context) (*kine.Store, error) {
	o := kine.Options{
		Path: filepath.Join(p.config.Dir, storeFile), Name: p.config.Name, MaxBytes: p.config.StoreBytes,
		Account: p.config.Account, Volume: p.config.Volume, Replica: p.config.Replica,
	}
	restored := true
	if _, err := os.Lstat(o.Path); errors.Is(err, fs.ErrNotExist) {
		restored = false
	}
	if p.config.Server == nil {
		mark, err := storemark.Read(p.config.Dir)
		if err == nil && !restored {
			return nil, fmt.Errorf("the store of the space is in the %s; set spec.store as it was, or restore a snapshot", mark.Database)
		}
		if err := storemark.Remove(p.config.Dir); err != nil {
			return nil, err
		}
		return kine.Open(ctx, o)
	}
	o.Server = p.config.Server
	if restored {
		epoch, err := loadRestored(ctx, o.Path, o.Name, *o.Server)
		if err != nil {
			return nil, err
		}
		if o.Server.Expected != nil { // another process may take the database over until it is opened
			server := *o.Server
			server.Expected = &epoch
			o.Server = &server
		}
	}
	if o.Server.Type.Cached() {
		o.Path = filepath.Join(p.config.Dir, cacheFile)
	} else {
		o.Path, o.Volume = "", nil
	}
	store, err := kine.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	mark, err := storemark.Read(p.config.Dir)
	if err != nil { // it is the first start, or the file is damaged
		mark = storemark.Mark{}
	}
	mark.Database = store.Name()
	err = storemark.Write(p.config.Dir, mark)
	if err == nil {
		err = p.claimFiles(ctx, store)
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// claimFiles saves the files of the space in its database, before the space serves a request. It fails if the database has newer ones.
func (p *ControlPlane) claimFiles(ctx context.Context, store *kine.Store) error {
	epoch, err := spacefiles.Epoch(p.config.Dir)
	if err == nil {
		err = store.CheckFiles(ctx, epoch)
	}
	if err == nil {
		err = spacefiles.WriteEpoch(p.config.Dir, store.Epoch()) // before they are saved: until then, those in the database are older
	}
	if err == nil {
		err = saveFiles(ctx, store, p.config.Dir)
	}
	return err
}

func saveFiles(ctx context.Context, store *kine.Store, dir string) error {
	data, err := spacefiles.Read(dir)
	if err != nil {
		return err
	}
	return store.SaveFiles(ctx, data)
}

// SaveFiles saves the files in the directory of the space in its database, if the store is there. It is called when they have changed.
func (p *ControlPlane) SaveFiles(ctx context.Context) error {
	if p.config.Server == nil {
		return nil
	}
	return saveFiles(ctx, p.store.Kine, p.config.Dir)
}

// loadRestored replaces what is in the database by the store in a file, and deletes the file. After a crash in between, it does so again:
// a shard drops the directory when it sees that another one has the space. It returns the epoch of the database.
func loadRestored(ctx context.Context, path, name string, server kine.Server) (epoch int64, err error) {
	if epoch, err = kine.RestoreServer(ctx, path, name, server); err != nil {
		return 0, err
	}
	return epoch, os.Remove(path)
}

// noteAccess writes what is asked about the space while it sleeps. It is called before the store is closed.
func (p *ControlPlane) noteAccess() error {
	if p.config.Server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	mark := storemark.Mark{Database: p.store.Kine.Name()}
	list, err := p.store.Kine.Client().Client.Get(ctx, builtin.TenantAccessPrefix, clientv3.WithPrefix(), clientv3.WithLimit(access.MaxTenantAccesses))
	if err != nil {
		return fmt.Errorf("note who has access to the space while it sleeps: %w", err)
	}
	for _, kv := range list.Kvs {
		if len(kv.Value) <= access.MaxTenantAccessBytes {
			mark.TenantAccesses = append(mark.TenantAccesses, kv.Value)
		}
	}
	if err := storemark.Write(p.config.Dir, mark); err != nil {
		return err
	}
	return p.SaveFiles(ctx)
}
