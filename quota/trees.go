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

// lock waits until nobody else in this process changes the ledgers of a tenant's tree.
func (t *trees) lock(ctx context.Context, store Store, tenant string) (unlock func(), err error) {
	root := tenant
	for depth := 0; ; depth++ {
		parent, known := t.known(root)
		if !known {
			ledger, err := store.Ledger(ctx, root)
			if err != nil {
				return nil, err
			}
			parent = ledger.Parent
			t.set(root, parent)
		}
		if parent == "" {
			break
		}
		if depth == maxDepth {
			return nil, fmt.Errorf("find the root of tenant %s: more than %d tenants are above it", tenant, maxDepth)
		}
		root = parent
	}
	lock := t.lockOf(root)
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the quota ledgers of tenant %s: %w", root, context.Cause(ctx))
	}
}

func (t *trees) known(tenant string) (parent string, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	parent, known = t.parents[tenant]
	return parent, known
}

func (t *trees) parent(tenant string) string {
	parent, _ := t.known(tenant)
	return parent
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
