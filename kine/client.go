// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"

	kineserver "github.com/k3s-io/kine/pkg/server"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
)

// bridge is kine's etcd server, without its streams, and with our leases.
type bridge struct {
	*kineserver.KVServerBridge
	leases leases
}

func (b *bridge) LeaseGrant(ctx context.Context, r *etcdserverpb.LeaseGrantRequest) (*etcdserverpb.LeaseGrantResponse, error) {
	granted, err := b.leases.Grant(ctx, r.TTL)
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.LeaseGrantResponse{Header: granted.ResponseHeader, ID: int64(granted.ID), TTL: granted.TTL}, nil
}

// newClient is an etcd client whose calls are calls of functions: no gRPC, no connection, nothing to encode, no goroutine.
func newClient(b *bridge, w watcher) *kubernetes.Client {
	c := clientv3.NewCtxClient(context.Background())
	c.KV = clientv3.NewKVFromKVClient(adapter.KvServerToKvClient(b), c)
	c.Watcher = w
	c.Lease = b.leases
	c.Maintenance = clientv3.NewMaintenanceFromMaintenanceClient(adapter.MaintenanceServerToMaintenanceClient(b), c)
	c.Cluster = clientv3.NewClusterFromClusterClient(adapter.ClusterServerToClusterClient(b), c)
	k := &kubernetes.Client{Client: c}
	k.Kubernetes = k
	return k
}
