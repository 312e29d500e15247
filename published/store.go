// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/published/expression"
	"github.com/berth-dev/berth/sharing"
)

// ErrNotRead is returned for a space with publications while the objects have not been read from the host yet. The space
// must keep the copies that it has.
var ErrNotRead = errors.New("the published objects have not been read from the host yet")

// Store has all PublishedObjects of a host. It is safe for concurrent use. It implements [cache.ReflectorStore].
type Store struct {
	compiler *expression.Compiler
	changed  func(publications []string)

	mu           sync.RWMutex
	read         bool
	publications map[string]map[string]*object // by publication, and by the name of the PublishedObject
	publication  map[string]string             // by the name of the PublishedObject
}

// NewStore returns a store that nothing was read into. It calls changed with the names of the publications whose objects
// have changed, and with none when all objects have been read for the first time: then those of all spaces have. Changed is
// not called concurrently.
func NewStore(changed func(publications []string)) (*Store, error) {
	compiler, err := expression.NewCompiler()
	if err != nil {
		return nil, err
	}
	return &Store{compiler: compiler, changed: changed, publications: map[string]map[string]*object{}, publication: map[string]string{}}, nil
}

// Rendering is what a space has of its publications.
type Rendering struct {
	// Objects are the copies, always in the same order. They must not be changed: spaces share them.
	Objects []access.Published
	// Problems say why objects are left out.
	Problems []error
	// Incomplete says that objects could not be rendered. The space must keep the copies of them that it has: they may be
	// policies.
	Incomplete bool
}

// Render returns the copies of the objects of publications, in the form for a space and its tenant. Tenant is empty if the
// space has none. If two publications have the same object, the one whose name is first in the alphabet is copied, and that of a
// Publication rather than a tenant's. Names of
// publications that don't exist are ignored.
func (s *Store) Render(ctx context.Context, publications []string, tenant, space expression.Subject) (Rendering, error) {
	if len(publications) == 0 {
		return Rendering{}, nil
	}
	objects, read := s.objects(publications)
	if !read {
		return Rendering{}, ErrNotRead
	}
	var result Rendering
	taken, failed := map[identity]*object{}, map[identity]*object{}
	for _, o := range objects {
		rendered, err := o.render(ctx, tenant, space)
		if err != nil && !sharing.IsShare(o.publication) { // what a tenant shares must not keep other copies from being deleted
			result.Incomplete = true
			failed[o.id] = o
		}
		other := o.conflict(taken)
		if other == nil && sharing.IsShare(o.publication) {
			other = o.conflict(failed) // the space keeps the copy that it has of it
		}
		if err == nil && other != nil {
			err = fmt.Errorf("the publication %s has the object too", other.publication)
		}
		if err != nil {
			result.Problems = append(result.Problems, fmt.Errorf("copy %s of publication %s: %w", o.id, o.publication, err))
			continue
		}
		taken[o.id] = o
		result.Objects = append(result.Objects, rendered)
	}
	return result, ctx.Err()
}

// conflict returns the other object that has the same copies, if there is one.
func (o *object) conflict(taken map[identity]*object) *object {
	if other := taken[o.id]; other != nil {
		return other
	}
	if o.id.namespace == "" {
		return nil
	}
	for id, other := range taken { // Every meets the object of any namespace
		if id.kind == o.id.kind && id.name == o.id.name && (o.namespaces == v1alpha1.EveryNamespace || other.namespaces == v1alpha1.EveryNamespace) {
			return other
		}
	}
	return nil
}

func (s *Store) objects(publications []string) (objects []*object, read bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, publication := range slices.Compact(slices.Sorted(slices.Values(publications))) {
		objects = slices.AppendSeq(objects, maps.Values(s.publications[publication]))
	}
	slices.SortFunc(objects, func(a, b *object) int {
		return cmp.Or(precedence(a)-precedence(b), cmp.Compare(a.publication, b.publication), cmp.Compare(a.name, b.name))
	})
	return objects, s.read
}

// precedence sorts what tenants share after what admins publish, so that a tenant can't replace an object of an admin.
func precedence(o *object) int {
	if sharing.IsShare(o.publication) {
		return 1
	}
	return 0
}

// Read reports whether the objects were read from the host once.
func (s *Store) Read() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.read
}
