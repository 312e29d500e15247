// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
)

// bound is how many host objects of a kind a space may have, where a quota of
// the host can't say it: on objects in no namespace, and on a kind that the host
// may have got after its controllers began, of which a quota would refuse all.
type bound struct {
	most int
	of   string // what they are to the tenant
}

// bound is the space's limit for host objects of a kind.
func (s *Syncer) bound(limit bounds.Quantity, of string) bound {
	if s.account == nil { // of tests
		return bound{limit.Max(), of}
	}
	return bound{int(s.account.Limit(limit)), of}
}

// room is what of such kinds the host's watches do not show yet. Many are made at
// once, and each must know of the others.
type room struct {
	mu   sync.Mutex
	made map[object]*making
}

// making is a host object that is being made, or was in some version.
type making struct {
	tries   int // under way
	version uint64
}

// errPanicked is what came of a create that did not return.
var errPanicked = errors.New("panicked")

// createHost makes v's host object, if there is room for it.
func (k *kind[T]) createHost(ctx context.Context, v, host T) error {
	key := Key{Kind: k.name, NamespacedName: client.ObjectKeyFromObject(v)}
	try, err := k.shortages.enter(key, host)
	if err != nil {
		return err
	}
	err = errPanicked
	defer func() { k.shortages.done(try, key, host, err) }() // or else those that wait for this try would wait forever
	err = k.createBounded(ctx, host)
	return err
}

func (k *kind[T]) createBounded(ctx context.Context, host T) error {
	if k.bound.most == 0 {
		return createOnHost(ctx, k.writer, host)
	}
	o := object{k.name, client.ObjectKeyFromObject(host)}
	if err := k.enter(o); err != nil {
		return err
	}
	err := errPanicked
	defer func() { k.room.tried(o, host, err) }()
	err = createOnHost(ctx, k.writer, host)
	return err
}

// enter takes room for an object, or says that there is none.
func (k *kind[T]) enter(o object) error {
	k.room.mu.Lock()
	defer k.room.mu.Unlock()
	told := k.host.fanouts[k.name].shown.Load() // before what is there is looked at
	others := map[types.NamespacedName]struct{}{}
	for host := range hosted[T](k.Syncer, k.name) {
		others[client.ObjectKeyFromObject(host)] = struct{}{}
	}
	for made, m := range k.room.made {
		switch {
		case made.kind != k.name || made == o:
		case m.tries == 0 && m.version <= told:
			delete(k.room.made, made)
		default:
			others[made.NamespacedName] = struct{}{}
		}
	}
	if len(others) >= k.bound.most {
		return forbids(field.ErrorList{field.Forbidden(field.NewPath("metadata", "name"),
			fmt.Sprintf("a space may have %d %s; delete some", k.bound.most, k.bound.of))})
	}
	if k.room.made[o] == nil {
		k.room.made[o] = &making{}
	}
	k.room.made[o].tries++
	return nil
}

// tried notes what came of it.
func (r *room) tried(o object, host client.Object, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.made[o]
	m.tries--
	if err == nil {
		m.version = version(host.GetResourceVersion())
	}
	if m.tries == 0 && m.version == 0 {
		delete(r.made, o)
	}
}
