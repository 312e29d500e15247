// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/berth-dev/berth/kine"
)

func TestAStoreKeepsItsDataAndRevisionWhenReopened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "space", "state.db")
	s, err := kine.Open(t.Context(), kine.Options{Path: path, Name: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	put, err := s.Client().Kubernetes.OptimisticPut(t.Context(), "/registry/a", []byte("1"), 0, kubernetes.PutOptions{})
	if err != nil || !put.Succeeded {
		t.Fatalf("put: %+v, %v", put, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = kine.Open(t.Context(), kine.Options{Path: path, Name: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.Client().Kubernetes.Get(t.Context(), "/registry/a", kubernetes.GetOptions{})
	if err != nil || got.KV == nil || string(got.KV.Value) != "1" || got.KV.ModRevision != put.Revision {
		t.Fatalf("get: %+v, %v", got, err)
	}
}
