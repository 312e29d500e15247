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

// shared follows the TenantAccess objects in the store.
type shared struct {
	client  *clientv3.Client
	written chan struct{} // of capacity 1
}

// Wrote implements [informer.Observer].
func (s *shared) Wrote(w informer.Write) {
	if strings.HasPrefix(w.Key, builtin.TenantAccessPrefix) {
		s.Lost()
	}
}

// Lost implements [informer.Observer].
func (s *shared) Lost() {
	select {
	case s.written <- struct{}{}:
	default:
	}
}

// FollowShared reads what the space grants visitors, and returns when further changes are noticed. RunShared must follow.
func (t *Tenancy) FollowShared(ctx context.Context, client *clientv3.Client, feed *informer.Feed) error {
	t.shared = &shared{client, make(chan struct{}, 1)}
	feed.Observe(t.shared)
	if err := feed.WaitReady(ctx); err != nil {
		return fmt.Errorf("follow TenantAccess objects: %w", err)
	}
	grants, err := t.shared.read(ctx)
	if err != nil {
		return err
	}
	t.source.SetShared(grants)
	return nil
}

// RunShared reads it again whenever it changes, until ctx ends. If it can't be read, nothing is granted: it may have been revoked.
func (t *Tenancy) RunShared(ctx context.Context) {
	defer t.source.ForgetShared()
	for {
		select {
		case <-t.shared.written:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		grants, err := t.shared.read(ctx)
		t.source.SetShared(grants)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Users of other tenants have no access until this can be read; Berth retries")
			t.shared.Lost()
			pause(ctx, readAgain)
		}
		restAfter(ctx, began)
	}
}

func (s *shared) read(ctx context.Context) ([]access.Grant, error) {
	stored, err := s.client.Get(ctx, builtin.TenantAccessPrefix, clientv3.WithPrefix(), clientv3.WithLimit(access.MaxShared))
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
