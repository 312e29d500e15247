// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/berth-dev/berth/kine"
)

// openNew opens a new store that the test's end closes.
func openNew(t testing.TB) *kine.Store {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "space", "state.db"))
}

func openAt(t testing.TB, path string) *kine.Store {
	t.Helper()
	s, err := kine.Open(t.Context(), kine.Options{Path: path, Name: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

func closeStore(t testing.TB, s *kine.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// create makes a key and returns its revision.
func create(t testing.TB, s *kine.Store, key, value string) int64 {
	t.Helper()
	return put(t, s, key, value, 0)
}

// put writes the version after rev of a key and returns its revision.
func put(t testing.TB, s *kine.Store, key, value string, rev int64) int64 {
	t.Helper()
	resp, err := s.Client().Kubernetes.OptimisticPut(t.Context(), key, []byte(value), rev, kubernetes.PutOptions{GetOnFailure: true})
	if err != nil || !resp.Succeeded {
		t.Errorf("put %s after %d: %+v, %v", key, rev, resp, err)
	}
	return resp.Revision
}

// remove deletes the version rev of a key and returns the revision of that.
func remove(t testing.TB, s *kine.Store, key string, rev int64) int64 {
	t.Helper()
	resp, err := s.Client().Kubernetes.OptimisticDelete(t.Context(), key, rev, kubernetes.DeleteOptions{GetOnFailure: true})
	if err != nil || !resp.Succeeded {
		t.Errorf("delete %s at %d: %+v, %v", key, rev, resp, err)
	}
	return resp.Revision
}

// value reads a key; "" is none.
func value(t testing.TB, s *kine.Store, key string) string {
	t.Helper()
	resp, err := s.Client().Kubernetes.Get(t.Context(), key, kubernetes.GetOptions{})
	if err != nil {
		t.Errorf("get %s: %v", key, err)
	}
	if resp.KV == nil {
		return ""
	}
	return string(resp.KV.Value)
}
