// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berth-dev/berth/internal/testservers"
	"github.com/berth-dev/berth/kine"
)

// D1, D4: a store in a cluster of servers is there while most of them are. Each is killed under load, and comes back.
func TestAStoreInSeveralServersOutlivesEachOfThem(t *testing.T) {
	for kind, start := range map[kine.ServerType]func(testing.TB) *testservers.Cluster{
		kine.Etcd: testservers.EtcdCluster, kine.NATS: testservers.NATSCluster,
	} {
		t.Run(string(kind), func(t *testing.T) {
			cluster := start(t)
			p := place{server: &kine.Server{Type: kind, DSN: cluster.DSN, ID: "1"}}.elsewhere(t)
			var s *kine.Store
			until(t, func() (ok bool) { // NATS takes a moment until it knows that it has enough servers for a stream
				var err error
				if s, err = kine.Open(t.Context(), p.options(kine.Options{})); err != nil {
					t.Logf("not open yet: %v", err)
				}
				return err == nil
			})
			t.Cleanup(func() { closeStore(t, s) })
			watch := s.Client().Watch(t.Context(), "/registry/child/", clientv3.WithPrefix())
			l := &ledger{acked: map[string]int64{}}
			stop := l.write(t, s, 8)
			acknowledge := func(more int) {
				t.Helper()
				n := l.count()
				until(t, func() bool { return l.count() > n+more })
			}
			for _, member := range cluster.Members {
				acknowledge(100)
				member.Kill()
				acknowledge(100) // by those that are left
				if err := member.Start(); err != nil {
					t.Fatal(err)
				}
			}
			acknowledge(100)
			stop()
			mustBeDelivered(t, s, l, watch)
			closeStore(t, s)
			mustHold(t, p.elsewhere(t), l.acked) // a process without a cache reads what the servers have
		})
	}
}
