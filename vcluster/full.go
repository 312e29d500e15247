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
)

// reserve is the part of a store that is kept for what already is: 1/reserve of
// it. Most objects are updated before they are gone, with the time of their
// deletion or without a finalizer, and a store that is full of objects must
// still be able to lose them.
const reserve = 20

// boundedStorage refuses what a store has no room for, and says what to do (D3).
type boundedStorage struct {
	storage.Interface
	resource schema.GroupResource
	used     func() (used, limit int64)
}

func (b *boundedStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if used, limit := b.used(); used > limit-limit/reserve {
		return b.full()
	}
	return b.tell(b.Interface.Create(ctx, key, obj, out, ttl))
}

func (b *boundedStorage) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	return b.tell(b.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached))
}

// tell replaces the store's error by one that a user understands.
func (b *boundedStorage) tell(err error) error {
	if errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, rpctypes.ErrGRPCNoSpace) {
		return b.full()
	}
	return err
}

func (b *boundedStorage) full() error {
	used, limit := b.used()
	message := "the store of this control plane finds no space on its disk; it goes on by itself when there is some again"
	if used > limit-limit/reserve {
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
