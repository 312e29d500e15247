// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/kine"
)

// smallDisk is a directory on a file system of its own, of some bytes.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("needs a file system of its own, which this user may not mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// hog takes what is left of a disk.
func hog(t *testing.T, dir string) (release func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "hog"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 16, 1 << 12} {
		for block := make([]byte, size); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
	return func() {
		if err := os.Remove(f.Name()); err != nil {
			t.Error(err)
		}
	}
}

// D3, D1: a disk that is really full refuses writes with a clear error and loses nothing; with free space, all goes on.
func TestADiskThatIsFullRefusesWritesUntilSpaceIsFreed(t *testing.T) {
	dir := smallDisk(t, "size=8m")
	path := filepath.Join(dir, "state.db")
	s := openAt(t, path)
	watch := s.Client().Watch(t.Context(), "/registry/kept", clientv3.WithPrefix())
	rev := create(t, s, "/registry/kept", "1")
	for round := range 3 {
		if round == 2 {
			s.Release() // so that a full disk meets a store without connections
		}
		free := hog(t, dir)
		large := []byte(strings.Repeat("x", 400<<10))
		resp, err := s.Client().Kubernetes.OptimisticPut(t.Context(), "/registry/kept", large, rev, kubernetes.PutOptions{GetOnFailure: true})
		if !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Errorf("round %d: update on a full disk: revision %d, %v, want %v", round, resp.Revision, err, rpctypes.ErrNoSpace)
		}
		if round < 2 && value(t, s, "/registry/kept") == "" {
			t.Errorf("round %d: a full disk can't be read", round)
		}
		free()
		until(t, func() bool { // nobody helps it
			resp, err := s.Client().Kubernetes.OptimisticPut(t.Context(), "/registry/kept", []byte("2"), rev, kubernetes.PutOptions{GetOnFailure: true})
			rev = max(rev, resp.Revision)
			return err == nil && resp.Succeeded
		})
	}
	if n := len(take(t, watch, 4)); n != 4 {
		t.Errorf("the watch saw %d changes", n)
	}
	closeStore(t, s)
	if v := value(t, openAt(t, path), "/registry/kept"); v != "2" {
		t.Errorf("value = %q after all", v)
	}
}

func TestAStoreIsNotMadeOnAFullDiskAndIsOnceSpaceIsFreed(t *testing.T) {
	dir := smallDisk(t, "size=1m")
	path := filepath.Join(dir, "space", "state.db")
	free := hog(t, dir)
	if s, err := kine.Open(t.Context(), kine.Options{Path: path}); err == nil {
		closeStore(t, s)
		t.Error("a store was made on a full disk")
	}
	free()
	create(t, openAt(t, path), "/registry/a", "1")
}
