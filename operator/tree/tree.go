// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Tenant is what of a tenant makes the tree.
type Tenant struct {
	// Parent is the name of the tenant above; "" for a root of the tree. It does not change.
	Parent string
	// Private tenants don't inherit rights from those above.
	Private bool
}

// Tree is the tree of all tenants. It has each pair of an ancestor and a descendant, so that a question in either direction is one
// look-up. Tenants may come in any order: one whose parent is not known has no ancestors until the parent comes. The zero value
// is an empty tree. It is safe for concurrent use.
type Tree struct {
	mu    sync.RWMutex
	known map[string]*node
	// children are names by the names of their parents, which may not be known.
	children map[string]map[string]struct{}
}

type node struct {
	Tenant
	ancestors   []string // the nearest first
	descendants map[string]struct{}
}

// Set adds a tenant, or changes it.
func (t *Tree) Set(name string, tenant Tenant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known, t.children = map[string]*node{}, map[string]map[string]struct{}{}
	}
	before := t.known[name]
	if before != nil && before.Parent == tenant.Parent {
		before.Private = tenant.Private
		return
	}
	t.remove(name)
	t.known[name] = &node{Tenant: tenant, descendants: map[string]struct{}{}}
	if tenant.Parent != "" {
		if t.children[tenant.Parent] == nil {
			t.children[tenant.Parent] = map[string]struct{}{}
		}
		t.children[tenant.Parent][name] = struct{}{}
	}
	t.connect(t.below(name))
}

// Get returns a tenant, and whether it is in the tree.
func (t *Tree) Get(name string) (Tenant, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if one := t.known[name]; one != nil {
		return one.Tenant, true
	}
	return Tenant{}, false
}

// Remove forgets a tenant. Those below it, if there are any, have no ancestors above it any more.
func (t *Tree) Remove(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(name)
}

func (t *Tree) remove(name string) {
	one := t.known[name]
	if one == nil {
		return
	}
	below := t.below(name)
	for _, each := range below {
		for _, ancestor := range t.known[each].ancestors {
			delete(t.known[ancestor].descendants, each)
		}
	}
	delete(t.known, name)
	delete(t.children[one.Parent], name)
	if len(t.children[one.Parent]) == 0 {
		delete(t.children, one.Parent)
	}
	t.connect(below[1:])
}

// below returns a tenant and all that are connected to it by their parents.
func (t *Tree) below(name string) []string {
	all, seen := []string{name}, map[string]bool{name: true}
	for i := 0; i < len(all); i++ {
		for child := range t.children[all[i]] {
			if !seen[child] { // a cycle, which Check refuses
				seen[child] = true
				all = append(all, child)
			}
		}
	}
	return all
}

// connect makes the pairs of tenants with those above them.
func (t *Tree) connect(names []string) {
	for _, name := range names {
		one := t.known[name]
		for _, ancestor := range one.ancestors {
			if above := t.known[ancestor]; above != nil {
				delete(above.descendants, name)
			}
		}
		one.ancestors = t.above(one.Parent, name)
		for _, ancestor := range one.ancestors {
			t.known[ancestor].descendants[name] = struct{}{}
		}
	}
}

// above returns a tenant and those above it, as far as they are known. It ends before it comes to one again, or to not.
func (t *Tree) above(name, not string) (all []string) {
	for one := t.known[name]; one != nil && name != not && !slices.Contains(all, name); one = t.known[name] {
		all = append(all, name)
		name = one.Parent
	}
	return all
}

// Ancestors returns those above a tenant, the nearest first.
func (t *Tree) Ancestors(name string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if one := t.known[name]; one != nil {
		return slices.Clone(one.ancestors)
	}
	return nil
}

// Descendants returns those below a tenant, sorted.
func (t *Tree) Descendants(name string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if one := t.known[name]; one != nil {
		return slices.Sorted(maps.Keys(one.descendants))
	}
	return nil
}

// Heirs returns the descendants of a tenant that inherit its rights, sorted: those that no private tenant is above, below the
// tenant, and that aren't private themselves.
func (t *Tree) Heirs(name string) (heirs []string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	one := t.known[name]
	if one == nil {
		return nil
	}
	for descendant := range one.descendants {
		if slices.Contains(t.bequeathers(descendant), name) {
			heirs = append(heirs, descendant)
		}
	}
	slices.Sort(heirs)
	return heirs
}

// Bequeathers returns the ancestors of a tenant whose rights it inherits, the nearest first.
func (t *Tree) Bequeathers(name string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.bequeathers(name)
}

func (t *Tree) bequeathers(name string) (all []string) {
	one := t.known[name]
	if one == nil || one.Private {
		return nil
	}
	for _, ancestor := range one.ancestors {
		all = append(all, ancestor)
		if t.known[ancestor].Private {
			break
		}
	}
	return all
}

// Check returns why a tenant can't be in the tree as it is, or can't be changed so: its parent isn't known or is below it, more
// than mostAncestors are above it or one below it, or a private tenant would be below one that is neither private nor a root.
func (t *Tree) Check(name string, tenant Tenant, mostAncestors int) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if before := t.known[name]; before != nil && before.Parent != tenant.Parent {
		return fmt.Errorf("spec.parent: %q can't be changed to %q: create another tenant there, and move the spaces by snapshots", before.Parent, tenant.Parent)
	}
	below := t.below(name)
	if tenant.Parent != "" {
		parent := t.known[tenant.Parent]
		switch {
		case slices.Contains(below, tenant.Parent):
			return fmt.Errorf("spec.parent: %q is below the tenant %q, or is the tenant itself; choose a parent elsewhere, or leave it empty", tenant.Parent, name)
		case parent == nil:
			return fmt.Errorf("spec.parent: there is no tenant %q; create it first", tenant.Parent)
		case tenant.Private && !parent.Private && parent.Parent != "":
			return fmt.Errorf("spec.private: the parent %q is neither private nor a root of the tree; set its spec.private, or leave this tenant's false", tenant.Parent)
		}
	}
	depths := map[string]int{name: len(t.above(tenant.Parent, name))}
	for _, each := range below {
		if each != name {
			depths[each] = depths[t.known[each].Parent] + 1
		}
		if depths[each] > mostAncestors {
			return fmt.Errorf("spec.parent: %d tenants would be above %q, and at most %d are possible; choose a parent that is higher in the tree", depths[each], each, mostAncestors)
		}
	}
	if tenant.Private || tenant.Parent == "" {
		return nil
	}
	for child := range t.children[name] {
		if t.known[child].Private {
			return fmt.Errorf("spec.private: the tenant %q below is private, so that this one must be, too; delete that one first", child)
		}
	}
	return nil
}
