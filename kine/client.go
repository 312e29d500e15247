// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	kineserver "github.com/k3s-io/kine/pkg/server"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/kine/sqlite"
)

// maxPut is etcd's default limit of a request, in bytes.
const maxPut = 3 << 19

// errKey is of a key that not each type of store can have.
var errKey = status.Error(codes.InvalidArgument, "etcdserver: a key must be UTF-8, without NUL bytes")

// ValidKey reports whether a store accepts a key for writes: UTF-8 without NUL bytes. Not each database can have others. A tenant can name an
// object so that its key is another one, as names in Protobuf may have any bytes.
func ValidKey(key string) bool { return utf8.ValidString(key) && !strings.Contains(key, "\x00") }

// bridge is kine's etcd server, without its streams, and with leases of our own.
type bridge struct {
	*kineserver.KVServerBridge
	backend *backend
	leases  leases
}

func (b *bridge) LeaseGrant(ctx context.Context, r *etcdserverpb.LeaseGrantRequest) (*etcdserverpb.LeaseGrantResponse, error) {
	granted, err := b.leases.Grant(ctx, r.TTL)
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.LeaseGrantResponse{Header: granted.ResponseHeader, ID: int64(granted.ID), TTL: granted.TTL}, nil
}

// Range adds to a cut list, as etcd does, how many keys remain. kine reports a cut list as complete.
func (b *bridge) Range(ctx context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	ctx, wasCut := withCut(ctx)
	resp, err := b.KVServerBridge.Range(ctx, r)
	if err != nil || !*wasCut || resp.More {
		return resp, err
	}
	revision := r.Revision
	if revision == 0 {
		revision = resp.Header.Revision
	}
	_, count, err := b.backend.Count(ctx, string(r.Key), string(r.RangeEnd), revision)
	resp.More, resp.Count = true, count
	return resp, err
}

// Put writes a key whatever its version is. kine's own Put fails if anything else was written in the meantime.
func (b *bridge) Put(ctx context.Context, r *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	key := string(r.Key)
	switch {
	case len(r.Key)+len(r.Value) > maxPut:
		return nil, rpctypes.ErrGRPCRequestTooLarge
	case !ValidKey(key):
		return nil, errKey
	case r.PrevKv, r.IgnoreValue, r.IgnoreLease, key == sqlite.CompactRevKey:
		return b.KVServerBridge.Put(ctx, r)
	}
	for {
		rev, err := b.backend.Create(ctx, key, r.Value, r.Lease)
		if errors.Is(err, kineserver.ErrKeyExists) {
			var kv *kineserver.KeyValue
			if _, kv, err = b.backend.Get(ctx, key, 0, true); err == nil && kv == nil {
				continue // it was deleted in the meantime
			}
			if err == nil {
				var written bool
				if rev, _, written, err = b.backend.Update(ctx, key, r.Value, kv.ModRevision, r.Lease); err == nil && !written {
					continue // it was written in the meantime
				}
			}
		}
		if err != nil {
			return nil, err
		}
		return &etcdserverpb.PutResponse{Header: &etcdserverpb.ResponseHeader{Revision: rev}}, nil
	}
}

// Txn rejects what etcd rejects. kine accepts only transactions with one write.
func (b *bridge) Txn(ctx context.Context, r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	for _, op := range r.Success {
		put := op.GetRequestPut()
		switch {
		case put == nil:
		case len(put.Key)+len(put.Value) > maxPut:
			return nil, rpctypes.ErrGRPCRequestTooLarge
		case !ValidKey(string(put.Key)):
			return nil, errKey
		}
	}
	return b.KVServerBridge.Txn(ctx, r)
}

// newClient returns an etcd client that calls functions directly: without gRPC, connections, encoding, and goroutines.
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
