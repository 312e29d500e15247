// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// treeNames returns the names of tenants by the names of their parents, from the top down: a root, and below it branches whose
// tenants are depth below it at most.
func treeNames(tenants, depth int) (names []string, parents map[string]string) {
	parents = map[string]string{}
	names = []string{"t0"}
	branches := (tenants - 1 + depth - 1) / depth
	for i := 1; i < tenants; i++ {
		name := fmt.Sprintf("t%d", i)
		parents[name] = "t0"
		if i > branches {
			parents[name] = fmt.Sprintf("t%d", i-branches)
		}
		names = append(names, name)
	}
	return names, parents
}

// reach waits until all spaces but the configured ones have an owner.
func (e *env) reach(tenants int, owner string) {
	e.Helper()
	e.eventually("all spaces are owned by "+owner, func(ctx context.Context) error {
		list := &v1alpha1.SpaceList{}
		if err := e.List(ctx, list); err != nil {
			return err
		}
		reached := 0
		for i := range list.Items {
			if slices.Contains(names(&list.Items[i]), owner) {
				reached++
			}
		}
		if reached < tenants {
			return fmt.Errorf("it owns %d of %d", reached, tenants)
		}
		return nil
	})
}

// BenchmarkARightReachesAllTenantsBelow is the time from a change of the root's owners until the spaces of all 1,000 tenants in a
// tree of depth 8 have them. A change of one right of a TenantOwner, and of the configuration, takes as long.
func BenchmarkARightReachesAllTenantsBelow(b *testing.B) {
	const tenants, depth = 1000, 8
	e := newEnv(b)
	e.run()
	names, parents := treeNames(tenants, depth)
	started := time.Now()
	var group errgroup.Group
	group.SetLimit(8)
	for _, name := range names {
		group.Go(func() error { return e.Create(b.Context(), tenant(name, below(parents[name]), ownedBy("owner-0"))) })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	e.reach(tenants, "owner-0")
	b.Logf("%d tenants were created in %s", tenants, time.Since(started))
	for i := 0; b.Loop(); i++ {
		owner := fmt.Sprintf("root-%d", i)
		root := tenant("t0")
		if err := e.Get(b.Context(), client.ObjectKeyFromObject(root), root); err != nil {
			b.Fatal(err)
		}
		root.Spec.Owners = append(root.Spec.Owners[:1], v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: owner})
		if err := e.Update(b.Context(), root); err != nil {
			b.Fatal(err)
		}
		e.reach(tenants, owner)
	}
}
