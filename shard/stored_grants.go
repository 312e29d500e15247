// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/utils/lru"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/storemark"
	"github.com/berth-dev/berth/kine/sqlite"
	"github.com/berth-dev/berth/vcluster/builtin"
)

// GivesAccess reports whether a space gives a visitor any rights (Z4, Z5). It wakes no space: what one that sleeps grants is read from its
// store. What a visitor may do, the space decides once it is awake, by what it grants then.
func (s *Shard) GivesAccess(ctx context.Context, space string, visitor *identity.Identity) bool {
	s.mu.Lock()
	_, exists := s.places[space]
	s.mu.Unlock()
	if !exists {
		return false
	}
	now, source := s.config.Clock.Now(), s.config.Settings(space).Access
	if source == nil {
		return false
	}
	if source.Accepts(visitor, now) {
		return true
	}
	if _, known := source.TenantAccesses(); known {
		return false
	}
	grants, err := s.stored.read(ctx, filepath.Join(s.dir(space), "store.db"))
	if err != nil {
		s.config.Logger.V(1).Info("Could not read what a space that sleeps grants", "space", space, "err", err)
		return false
	}
	return len(grants.For(access.ClientOf(visitor), now)) > 0
}

const (
	// These limit for how many spaces it is remembered what they grant while they sleep: much in at most 16 MiB, little in 16 MiB, too.
	rememberedMuch, rememberedLittle = 16, 256
	// little is how many bytes of TenantAccess objects are little.
	little = 64 << 10
	// readsAtOnce is how many stores are read at once.
	readsAtOnce = 2
)

// storedGrants are what spaces grant that sleep.
type storedGrants struct {
	much, little *lru.Cache // map paths to *storedGrant
	reads        *semaphore.Weighted
}

type storedGrant struct {
	files  [2]storeStamp
	grants *access.Set
}

// storeStamp tells one version of a file from another. Nothing writes to the store of a space that sleeps, but it may be replaced.
type storeStamp struct {
	file os.FileInfo
	size int64
	at   time.Time
}

func newStoredGrants() *storedGrants {
	return &storedGrants{lru.New(rememberedMuch), lru.New(rememberedLittle), semaphore.NewWeighted(readsAtOnce)}
}

func stampOf(path string) (stamps [2]storeStamp) {
	for i, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(path + suffix); err == nil {
			stamps[i] = storeStamp{info, info.Size(), info.ModTime()}
		}
	}
	return stamps
}

func (s storeStamp) same(as storeStamp) bool {
	return s.size == as.size && s.at.Equal(as.at) && (s.file == nil) == (as.file == nil) && (s.file == nil || os.SameFile(s.file, as.file))
}

// readGrants returns the TenantAccess objects in the store at path, or in the mark of a store in a database server.
func readGrants(ctx context.Context, path string) ([][]byte, error) {
	if dir := filepath.Dir(path); path == storemark.Path(dir) {
		mark, err := storemark.Read(dir)
		return mark.TenantAccesses, err
	}
	return sqlite.Read(ctx, path, builtin.TenantAccessPrefix, access.MaxTenantAccessBytes, access.MaxTenantAccesses)
}

// read returns what the TenantAccess objects in the store at path grant.
func (s *storedGrants) read(ctx context.Context, path string) (*access.Set, error) {
	if dir := filepath.Dir(path); storemark.Exists(dir) {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) { // otherwise, it was restored and is loaded at the next start
			path = storemark.Path(dir)
		}
	}
	stamps := stampOf(path)
	for _, cache := range []*lru.Cache{s.little, s.much} {
		if known, ok := cache.Get(path); ok {
			if k := known.(*storedGrant); k.files[0].same(stamps[0]) && k.files[1].same(stamps[1]) {
				return k.grants, nil
			}
		}
	}
	if err := s.reads.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer s.reads.Release(1)
	values, err := readGrants(ctx, path)
	if err != nil {
		return nil, err
	}
	var grants []access.Grant
	bytes := 0
	for _, value := range values {
		bytes += len(value)
		if grant, err := access.GrantOfStored(value); err == nil {
			grants = append(grants, grant)
		}
	}
	read := &storedGrant{stamps, access.NewSet(grants)}
	s.little.Remove(path)
	s.much.Remove(path)
	if bytes <= little {
		s.little.Add(path, read)
	} else {
		s.much.Add(path, read)
	}
	return read.grants, nil
}
