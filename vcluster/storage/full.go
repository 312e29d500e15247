// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/vcluster/invalid"
	"github.com/berth-dev/berth/vcluster/refusal"
	"github.com/berth-dev/berth/vcluster/requests"
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

// boundedStorage refuses what is too much for a store, and says what to do (D3).
type boundedStorage struct {
	storage.Interface
	resource schema.GroupResource
	codec    runtime.Encoder
	used     func() (used, limit int64)
	account  *bounds.Account
	watches  *clientWatches
}

// spent tells whether only the reserve is left.
func (b *boundedStorage) spent() bool {
	used, limit := b.used()
	return used > limit-limit/reserve
}

func (b *boundedStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if !kine.ValidKey(key) {
		name := path.Base(key) // of any length, and %q makes it longer
		return apierrors.NewBadRequest(fmt.Sprintf("metadata.name: %q: a name must be UTF-8, without NUL bytes; choose another one", name[:min(len(name), 256)]))
	}
	if b.spent() {
		return b.full()
	}
	if err := b.checkCached(obj); err != nil {
		return err
	}
	if err := b.checkFields(obj); err != nil {
		return err
	}
	return b.tell(b.Interface.Create(ctx, key, obj, out, ttl))
}

func (b *boundedStorage) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	ctx, read := requests.Reading(ctx)
	defer read.End()
	return b.tell(b.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts))
}

func (b *boundedStorage) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	ctx, read := requests.Reading(ctx)
	defer read.End()
	if b.spent() {
		update = b.sparing(update)
	}
	update = b.boundFields(ctx, key, b.boundPatch(ctx, b.boundCached(boundScaled(ctx, update))))
	return b.tell(b.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached))
}

// boundPatch has update refuse to apply a patch that takes too much work.
func (b *boundedStorage) boundPatch(ctx context.Context, update storage.UpdateFunc) storage.UpdateFunc {
	return func(old runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if err := requests.AdmitPatch(ctx, old); err != nil {
			return nil, nil, err
		}
		return update(old, response)
	}
}

// boundScaled makes update refuse to scale a custom resource whose validation takes too much.
func boundScaled(ctx context.Context, update storage.UpdateFunc) storage.UpdateFunc {
	return func(old runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if err := invalid.CheckScaled(ctx, old); err != nil {
			return nil, nil, err
		}
		return update(old, response)
	}
}

// sparing makes update refuse what would make an object, which server-side apply
// does by updates, or let one grow by more than a deletion does.
func (b *boundedStorage) sparing(update storage.UpdateFunc) storage.UpdateFunc {
	return measured(b.size, update, func(_ runtime.Object, response storage.ResponseMeta, grown int64) error {
		if response.ResourceVersion == 0 || grown > deletionBytes {
			return b.full()
		}
		return nil
	})
}

// measured has check refuse what update makes of an object. It is called with what was made, and by how much its size is larger.
func measured(
	size func(runtime.Object) (int64, error), update storage.UpdateFunc, check func(updated runtime.Object, response storage.ResponseMeta, grown int64) error,
) storage.UpdateFunc {
	return func(old runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
		before, err := size(old) // update may change it
		if err != nil {
			return nil, nil, err
		}
		updated, ttl, err := update(old, response)
		if err != nil {
			return nil, nil, err
		}
		after, err := size(updated)
		if err == nil {
			err = check(updated, response, after-before)
		}
		if err != nil {
			return nil, nil, err
		}
		return updated, ttl, nil
	}
}

func (b *boundedStorage) size(obj runtime.Object) (int64, error) {
	encoded, err := runtime.Encode(b.codec, obj)
	return int64(len(encoded)), err
}

// tell replaces the store's error by one that a user understands.
func (b *boundedStorage) tell(err error) error {
	if errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, rpctypes.ErrGRPCNoSpace) {
		return b.full()
	}
	return refusal.Status(err, b.resource, "")
}

func (b *boundedStorage) full() error {
	used, limit := b.used()
	message := "the disk of the store is full; the store accepts writes again when the disk has free space"
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
