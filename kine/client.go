// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"sync"
	"time"

	kineserver "github.com/k3s-io/kine/pkg/server"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
)

// bridge is kine's etcd server, of which the streams are counted: a stream outlives the client that closed it by a
// moment, and Close waits for it.
type bridge struct {
	*kineserver.KVServerBridge

	mu      sync.Mutex
	closed  bool
	streams sync.WaitGroup
}

func (b *bridge) Watch(ws etcdserverpb.Watch_WatchServer) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return errClosed
	}
	b.streams.Add(1)
	b.mu.Unlock()
	defer b.streams.Done()
	out := newOutbox(ws)
	defer out.close()
	return b.KVServerBridge.Watch(out)
}

// close waits for the streams, which their clients must have closed.
func (b *bridge) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.streams.Wait()
}

// newClient is an etcd client that calls the bridge directly: no gRPC, no connection, nothing to encode.
func newClient(b *bridge) *kubernetes.Client {
	c := clientv3.NewCtxClient(context.Background())
	c.KV = clientv3.NewKVFromKVClient(adapter.KvServerToKvClient(b), c)
	c.Watcher = clientv3.NewWatchFromWatchClient(adapter.WatchServerToWatchClient(b), c)
	c.Lease = clientv3.NewLeaseFromLeaseClient(adapter.LeaseServerToLeaseClient(b), c, time.Second)
	c.Maintenance = clientv3.NewMaintenanceFromMaintenanceClient(adapter.MaintenanceServerToMaintenanceClient(b), c)
	c.Cluster = clientv3.NewClusterFromClusterClient(adapter.ClusterServerToClusterClient(b), c)
	k := &kubernetes.Client{Client: c}
	k.Kubernetes = k
	return k
}
