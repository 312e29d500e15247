// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/vcluster/fields"
)

// checkFields refuses to store an object with too many fields, whoever wrote them: a patch, a webhook, a policy.
func (b *boundedStorage) checkFields(object runtime.Object) error {
	if exceeded := fields.Of(object).Check(); exceeded != nil {
		return apierrors.NewForbidden(b.resource, nameOf(object), exceeded)
	}
	return nil
}

// BoundFields has update refuse what has too many fields, unless the stored object had as many, under older rules, or it is
// about to be deleted.
func (b *boundedStorage) boundFields(ctx context.Context, key string, update storage.UpdateFunc) storage.UpdateFunc {
	return func(old runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
		wasDeleted := isDeleted(old)
		updated, ttl, err := update(old, response)
		if err != nil {
			return nil, nil, err
		}
		exceeded := b.checkFields(updated)
		if exceeded == nil || !wasDeleted && isDeleted(updated) {
			return updated, ttl, nil
		}
		before, ok := reflect.New(reflect.TypeOf(updated).Elem()).Interface().(runtime.Object) // update may have changed old
		if !ok || b.Interface.Get(ctx, key, storage.GetOptions{}, before) != nil || fields.Of(before).Steps() < fields.Of(updated).Steps() {
			return nil, nil, exceeded
		}
		return updated, ttl, nil
	}
}

func isDeleted(object runtime.Object) bool {
	m, err := meta.Accessor(object)
	return err == nil && m.GetDeletionTimestamp() != nil
}
