// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"fmt"
	"sync"
)

// maxDepth limits how many tenants are above one another.
const maxDepth = 64

// trees has a lock for each tree of tenants, so that the spaces of this process don't get in each other's way. What other processes do is
// found by conflicts. It is safe for concurrent use.
type trees struct {
	mu      sync.Mutex
	parents map[string]string // the parent of a tenant never changes
	locks   map[string]chan struct{}
}

// ledger reads the ledger of a tenant.
func (l *Ledgers) ledger(ctx context.Context, tenant string) (*Ledger, error) {
	ledger, err := l.store.Ledger(ctx, tenant)
	if err == nil {
		l.trees.set(tenant, ledger.Parent)
	}
	return ledger, err
}

// lock waits until nobody else in this process changes the ledgers of a tenant's tree.
func (l *Ledgers) lock(ctx context.Context, tenant string) (unlock func(), err error) {
	root := tenant
	for depth := 0; ; depth++ {
		parent, known := l.trees.parent(root)
		if !known {
			ledger, err := l.ledger(ctx, root)
			if err != nil {
				return nil, err
			}
			parent = ledger.Parent
		}
		if parent == "" {
			break
		}
		if depth == maxDepth {
			return nil, fmt.Errorf("find the root of tenant %s: more than %d tenants are above it", tenant, maxDepth)
		}
		root = parent
	}
	lock := l.trees.lockOf(root)
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the quota ledgers of tenant %s: %w", root, context.Cause(ctx))
	}
}

// parent returns the parent of a tenant, if its ledger was read before.
func (t *trees) parent(tenant string) (parent string, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	parent, known = t.parents[tenant]
	return parent, known
}

// root returns the root of a tenant's tree, if all ledgers up to it were read before.
func (t *trees) root(tenant string) (root string, known bool) {
	for range maxDepth {
		parent, known := t.parent(tenant)
		if !known {
			return "", false
		}
		if parent == "" {
			return tenant, true
		}
		tenant = parent
	}
	return "", false
}

func (t *trees) set(tenant, parent string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.parents == nil {
		t.parents = map[string]string{}
	}
	t.parents[tenant] = parent
}

func (t *trees) lockOf(root string) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.locks == nil {
		t.locks = map[string]chan struct{}{}
	}
	if t.locks[root] == nil {
		t.locks[root] = make(chan struct{}, 1)
	}
	return t.locks[root]
}
