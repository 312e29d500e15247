// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/bounds"
)

// reserve is the part of a store that is kept for what already is: 1/reserve of
// it. Most objects are updated before they are gone, with the time of their
// deletion or without a finalizer, and a store that is full of objects must
// still be able to lose them.
const (
	reserve = 20
	// deletionBytes is more than what an update adds that is part of a deletion.
	deletionBytes = 1 << 10
)

// boundedStorage refuses what a store has no room for, and says what to do (D3).
type boundedStorage struct {
	storage.Interface
	resource schema.GroupResource
	codec    runtime.Encoder
	used     func() (used, limit int64)
	watches  *clientWatches
}

// spent tells whether only the reserve is left.
func (b *boundedStorage) spent() bool {
	used, limit := b.used()
	return used > limit-limit/reserve
}

func (b *boundedStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if b.spent() {
		return b.full()
	}
	return b.tell(b.Interface.Create(ctx, key, obj, out, ttl))
}

func (b *boundedStorage) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	defer giveBackReads(ctx)()
	return b.tell(b.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts))
}

func (b *boundedStorage) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	defer giveBackReads(ctx)()
	if b.spent() {
		update = b.sparing(update)
	}
	return b.tell(b.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached))
}

// sparing makes update refuse what would make an object, which server-side apply
// does by updates, or let one grow by more than a deletion does.
func (b *boundedStorage) sparing(update storage.UpdateFunc) storage.UpdateFunc {
	return func(old runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
		before, err := b.size(old) // update may change it
		if err != nil {
			return nil, nil, err
		}
		updated, ttl, err := update(old, response)
		if err != nil {
			return nil, nil, err
		}
		after, err := b.size(updated)
		if err != nil {
			return nil, nil, err
		}
		if response.ResourceVersion == 0 || after > before+deletionBytes {
			return nil, nil, b.full()
		}
		return updated, ttl, nil
	}
}

func (b *boundedStorage) size(obj runtime.Object) (int, error) {
	encoded, err := runtime.Encode(b.codec, obj)
	return len(encoded), err
}

// giveBackReads gives back what is read of the store until the function it returns is called: a write holds it no longer.
func giveBackReads(ctx context.Context) func() {
	reservation := bounds.ReservationOf(ctx)
	before := reservation.Held()
	return func() { reservation.Shrink(reservation.Held() - before) }
}

// tell replaces the store's error by one that a user understands.
func (b *boundedStorage) tell(err error) error {
	if errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, rpctypes.ErrGRPCNoSpace) {
		return b.full()
	}
	return asStatus(err, b.resource, "")
}

func (b *boundedStorage) full() error {
	used, limit := b.used()
	message := "the store of this control plane finds no space on its disk; it goes on by itself when there is some again"
	if b.spent() {
		message = fmt.Sprintf("the store of this control plane is full: it holds %s of %s; delete objects, and try again in a minute",
			resource.NewQuantity(used, resource.BinarySI), resource.NewQuantity(limit, resource.BinarySI))
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInsufficientStorage,
		Reason:  "InsufficientStorage",
		Message: message,
		Details: &metav1.StatusDetails{Group: b.resource.Group, Kind: b.resource.Resource},
	}}
}
