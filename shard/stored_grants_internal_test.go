// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/berth-dev/berth/internal/storemark"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/vcluster/builtin"
)

func storeWith(t *testing.T, values ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := kine.Open(t.Context(), kine.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for i, value := range values {
		if _, err := s.Client().OptimisticPut(t.Context(), builtin.TenantAccessPrefix+strconv.Itoa(i), []byte(value), 0, kubernetes.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Z5: what a space grants that sleeps is what its store has now, whatever was remembered, and nothing if that can't be read.
func TestGrantsOfASpaceThatSleepsAreThoseOfItsStore(t *testing.T) {
	const grant = `{"metadata": {"name": "a"}, "spec": {"subjects": [{"tenant": "TENANT"}], "rules": []}}`
	of := func(tenant string) string { return strings.Replace(grant, "TENANT", tenant, 1) }
	path, s := storeWith(t, of("lunar"), "not JSON", of("mars")), newStoredGrants()
	check := func(want ...string) {
		t.Helper()
		for range 2 {
			grants, err := s.read(context.Background(), path)
			var got []string
			for _, g := range grants.All() {
				got = append(got, g.Subjects[0].Tenant)
			}
			if strings.Join(got, " ") != strings.Join(want, " ") || (err != nil) != (want == nil) {
				t.Errorf("it grants %q (%v), want %q", got, err, want)
			}
		}
	}
	check("lunar", "mars")
	if err := os.Rename(storeWith(t, of("venus")), path); err != nil { // as a restore does
		t.Fatal(err)
	}
	check("venus")
	large := strings.Repeat("x", 14<<10)
	big := strings.Replace(grant, `"name": "a"`, `"name": "a", "annotations": {"a": "`+large+`"}`, 1)
	if err := os.Rename(storeWith(t, big, big, big, big, big), path); err != nil {
		t.Fatal(err)
	}
	check("TENANT", "TENANT", "TENANT", "TENANT", "TENANT")
	if err := os.WriteFile(path, []byte("not a store"), 0o600); err != nil {
		t.Fatal(err)
	}
	check()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check()
	// The store is in a database server, and a restore has not been loaded yet at first.
	if err := storemark.Write(filepath.Dir(path), storemark.Mark{TenantAccesses: [][]byte{[]byte(of("pluto"))}}); err != nil {
		t.Fatal(err)
	}
	check("pluto")
	if err := os.Rename(storeWith(t, of("venus")), path); err != nil {
		t.Fatal(err)
	}
	check("venus")
}
