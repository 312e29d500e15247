// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/vcluster/builtin"
	"github.com/berth-dev/berth/vcluster/informer"
)

// readAgain is the pause after objects could not be read.
const readAgain = time.Second

// tenantAccesses follows the TenantAccess objects in the store.
type tenantAccesses struct {
	client  *clientv3.Client
	written chan struct{} // of capacity 1
}

// Wrote implements [informer.Observer].
func (s *tenantAccesses) Wrote(w informer.Write) {
	if strings.HasPrefix(w.Key, builtin.TenantAccessPrefix) {
		s.Lost()
	}
}

// Lost implements [informer.Observer].
func (s *tenantAccesses) Lost() {
	select {
	case s.written <- struct{}{}:
	default:
	}
}

// FollowTenantAccesses reads what the space grants visitors, and returns when further changes are noticed. RunTenantAccesses must follow.
func (t *Tenancy) FollowTenantAccesses(ctx context.Context, client *clientv3.Client, feed *informer.Feed) error {
	t.accesses = &tenantAccesses{client, make(chan struct{}, 1)}
	feed.Observe(t.accesses)
	if err := feed.WaitReady(ctx); err != nil {
		return fmt.Errorf("follow TenantAccess objects: %w", err)
	}
	grants, err := t.accesses.read(ctx)
	if err != nil {
		return err
	}
	t.source.SetTenantAccesses(grants)
	return nil
}

// RunTenantAccesses reads it again whenever it changes, until ctx ends. If it can't be read, nothing is granted: it may have been revoked.
func (t *Tenancy) RunTenantAccesses(ctx context.Context) {
	defer t.source.ForgetTenantAccesses()
	for {
		select {
		case <-t.accesses.written:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		grants, err := t.accesses.read(ctx)
		t.source.SetTenantAccesses(grants)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Users of other tenants have no access until this can be read; Berth retries")
			t.accesses.Lost()
			pause(ctx, readAgain)
		}
		restAfter(ctx, began)
	}
}

func (s *tenantAccesses) read(ctx context.Context) ([]access.Grant, error) {
	stored, err := s.client.Get(ctx, builtin.TenantAccessPrefix, clientv3.WithPrefix(), clientv3.WithLimit(access.MaxTenantAccesses))
	if err != nil {
		return nil, fmt.Errorf("read TenantAccess objects: %w", err)
	}
	var grants []access.Grant
	for _, kv := range stored.Kvs {
		if grant, err := access.GrantOfStored(kv.Value); err == nil { // who can't be read grants nothing
			grants = append(grants, grant)
		}
	}
	return grants, nil
}
