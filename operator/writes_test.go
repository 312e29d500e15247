// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator"
)

// counter counts the writes of an operator.
type counter struct {
	*env
	killer
	writes map[string]int
}

func newCounter(e *env) *counter {
	c := &counter{env: e, writes: map[string]int{}}
	c.killer = killer{left: math.MaxInt, kill: func() {}, wrote: func(what string) { c.writes[what]++ }}
	return c
}

// settled returns the counts once the operator has written nothing for longer than it waits for anything.
func (c *counter) settled() (counts map[string]int) {
	c.Helper()
	const looks = 30 // of 50 ms
	same := 0
	c.eventually("the operator has written all", func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if same++; !maps.Equal(counts, c.writes) {
			counts, same = maps.Clone(c.writes), 0
		}
		if same < looks {
			return fmt.Errorf("it still writes: %v", counts)
		}
		return nil
	})
	return counts
}

// H3: a changed right of the root is one write for the space of each tenant below, and one for the tenant's status. The host's work
// for each is what limits how soon 1,000 tenants have the right.
func TestAChangedRightIsWrittenOnceForEachSpace(t *testing.T) {
	e := newEnv(t)
	c := newCounter(e)
	e.run(func(config *operator.Config) { config.NewClient = c.client })
	parents := map[string]string{"root": "", "a": "root", "b": "root", "aa": "a", "ab": "a", "aaa": "aa"}
	for name, parent := range parents {
		e.create(tenant(name, below(parent), ownedBy("of-"+name)))
	}
	space := func(name, owner string) *v1alpha1.Space {
		return e.spaceIs(name, "owned by "+owner, func(s *v1alpha1.Space) bool { return slices.Contains(names(s), owner) })
	}
	for name := range parents {
		space(name, "of-root")
	}
	before := c.settled()
	generations := map[string]int64{}
	for name := range parents {
		generations[name] = space(name, "of-root").Generation
	}
	change(e, &v1alpha1.Tenant{ObjectMeta: tenant("root").ObjectMeta}, func(t *v1alpha1.Tenant) { t.Spec.Owners[0].Name = "another" })
	for name := range parents {
		space(name, "another")
	}
	after := c.settled()
	for name := range parents {
		if s := space(name, "another"); s.Generation != generations[name]+1 {
			t.Errorf("the spec of space %s was changed %d times", name, s.Generation-generations[name])
		}
		e.tenantIs(name, "owned by another", func(t *v1alpha1.Tenant) bool {
			return slices.ContainsFunc(t.Status.Owners, func(o v1alpha1.OwnerStatus) bool { return o.Name == "another" })
		})
	}
	for what := range after {
		after[what] -= before[what]
	}
	maps.DeleteFunc(after, func(_ string, n int) bool { return n == 0 })
	if want := map[string]int{"apply": len(parents), "apply status": len(parents)}; !maps.Equal(after, want) {
		t.Errorf("the writes are %v, want %v", after, want)
	}
}
