// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"
)

// maxTTL is etcd's longest lease, in seconds.
const maxTTL = 9_000_000_000

var errLease = status.Error(codes.Unimplemented, "etcdserver: a lease can't be renewed, revoked or looked at")

// leases grants leases. The ID of a lease is the second at which it expires. Each key contains it, so that it stays
// valid while the store is closed and after it is opened again. (kine stores the duration, which begins again with each
// start.) The API server grants leases for temporary objects such as events, and uses no other operations of leases.
type leases struct{ clock clock.PassiveClock }

var _ clientv3.Lease = leases{}

func (l leases) Grant(_ context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	ttl = min(max(ttl, 1), maxTTL)
	// Round up, so that no lease is shorter than requested.
	return &clientv3.LeaseGrantResponse{
		ResponseHeader: &etcdserverpb.ResponseHeader{}, ID: clientv3.LeaseID(l.clock.Now().Unix() + ttl + 1), TTL: ttl,
	}, nil
}

func (leases) Revoke(context.Context, clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return nil, errLease
}

func (leases) TimeToLive(context.Context, clientv3.LeaseID, ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	return nil, errLease
}

func (leases) Leases(context.Context) (*clientv3.LeaseLeasesResponse, error) { return nil, errLease }

func (leases) KeepAlive(context.Context, clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	return nil, errLease
}

func (leases) KeepAliveOnce(context.Context, clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	return nil, errLease
}

func (leases) Close() error { return nil }
