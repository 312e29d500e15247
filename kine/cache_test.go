// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berth-dev/berth/kine"
)

// onCached runs a test in a new place of each type of server whose stores have a cache.
func onCached(t *testing.T, test func(*testing.T, place)) {
	t.Helper()
	for _, kind := range []kine.ServerType{kine.Etcd, kine.NATS, kine.S3} {
		t.Run(string(kind), func(t *testing.T) { test(t, inServer(t, kind)) })
	}
}

// D1, D2: the cache may be lost, damaged, or old. The store has what was acknowledged, revisions never decrease, and clients that
// know an earlier revision list again.
func TestACacheMayBeLostDamagedOrOld(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, place){
		"Lost": func(t *testing.T, p place) {
			t.Helper()
			if err := os.RemoveAll(filepath.Dir(p.path)); err != nil {
				t.Fatal(err)
			}
		},
		"Damaged": func(t *testing.T, p place) {
			t.Helper()
			info, err := os.Stat(p.path)
			if err == nil {
				err = os.WriteFile(p.path, make([]byte, info.Size()), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		"Old": func(t *testing.T, p place) {
			t.Helper()
			s := p.elsewhere(t).open(t)
			create(t, s, "/registry/others", "1")
			closeStore(t, s)
		},
		"WithoutItsMark": func(t *testing.T, p place) {
			t.Helper()
			if err := os.Remove(p.path + ".of"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onCached(t, func(t *testing.T, p place) {
				s := p.open(t)
				kept := create(t, s, "/registry/kept", "1")
				remove(t, s, "/registry/gone", create(t, s, "/registry/gone", "1"))
				last := mustRevision(t, s)
				closeStore(t, s)
				spoil(t, p)

				s = p.open(t)
				if value(t, s, "/registry/kept") != "1" || value(t, s, "/registry/gone") != "" || name == "Old" && value(t, s, "/registry/others") != "1" {
					t.Error("the store has not what was acknowledged")
				}
				if now := mustRevision(t, s); now <= last {
					t.Errorf("the revision is %d after %d", now, last)
				}
				for _, rev := range []int64{kept, last} { // what was deleted at last can't be told
					if resp := <-s.Client().Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(rev)); !errors.Is(resp.Err(), rpctypes.ErrCompacted) {
						t.Errorf("watch from %d: %v", rev, resp.Err())
					}
				}
				put(t, s, "/registry/kept", "2", kept)
				create(t, s, "/registry/gone", "2")
			})
		})
	}
}

// A cache that is current is used as it is: with its history.
func TestACurrentCacheHasItsHistory(t *testing.T) {
	onCached(t, func(t *testing.T, p place) {
		s := p.open(t)
		rev := create(t, s, "/registry/a", "1")
		put(t, s, "/registry/a", "2", rev)
		closeStore(t, s)
		s = p.open(t)
		if n := len(take(t, s.Client().Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(rev)), 2)); n != 2 {
			t.Errorf("%d events", n)
		}
	})
}

// A process with a cache in use doesn't open the store from the same directory, and doesn't disturb the one that has.
func TestACacheIsOpenOnce(t *testing.T) {
	onCached(t, func(t *testing.T, p place) {
		s := p.open(t)
		if _, err := kine.Open(t.Context(), p.options(kine.Options{})); !errors.Is(err, kine.ErrInUse) {
			t.Errorf("open = %v", err)
		}
		create(t, s, "/registry/a", "1")
	})
}

// A store in object storage is a log that grows with each write. From time to time, all rows replace it.
func TestALogOfObjectsIsReplacedByABase(t *testing.T) {
	p := inServer(t, kine.S3)
	s := p.open(t)
	rev := create(t, s, "/registry/often", "0")
	kept := create(t, s, "/registry/kept", "1")
	remove(t, s, "/registry/gone", create(t, s, "/registry/gone", "1"))
	for i := range 1200 { // a base is due after 1000
		rev = put(t, s, "/registry/often", fmt.Sprint(i), rev)
	}
	until(t, func() bool {
		rev = put(t, s, "/registry/often", "more", rev)
		return len(p.keysS3(t)) < 1000
	})
	last := put(t, s, "/registry/often", "last", rev)
	closeStore(t, s)
	s = p.elsewhere(t).open(t)
	if value(t, s, "/registry/often") != "last" || value(t, s, "/registry/kept") != "1" || value(t, s, "/registry/gone") != "" {
		t.Error("the store has not what was acknowledged")
	}
	if now := mustRevision(t, s); now <= last {
		t.Errorf("the revision is %d after %d", now, last)
	}
	put(t, s, "/registry/kept", "2", kept)
}
