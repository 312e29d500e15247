// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// holdingStorage holds one object, which only an older version of Berth may have stored.
type holdingStorage struct {
	storage.Interface
	held *corev1.ConfigMap
}

func (s holdingStorage) Get(_ context.Context, _ string, _ storage.GetOptions, out runtime.Object) error {
	s.held.DeepCopyInto(out.(*corev1.ConfigMap)) //nolint:forcetypeassert // a test
	return nil
}

func withFinalizers(n int, deleted bool) *corev1.ConfigMap {
	m := &corev1.ConfigMap{}
	for i := range n {
		m.Finalizers = append(m.Finalizers, fmt.Sprintf("example.com/%d", i))
	}
	if deleted {
		m.DeletionTimestamp = &metav1.Time{}
	}
	return m
}

// An object that was stored under older rules can be deleted, and lose its finalizers one by one, but can't grow.
func TestObjectsOfManyFieldsThatAreStoredCanBeDeleted(t *testing.T) {
	const many = 12_000
	for name, c := range map[string]struct {
		old, updated *corev1.ConfigMap
		refused      bool
	}{
		"a usual object grows":        {withFinalizers(1, false), withFinalizers(2, false), false},
		"it passes the limit":         {withFinalizers(1, false), withFinalizers(many, false), true},
		"it grows":                    {withFinalizers(many, false), withFinalizers(many+1, false), true},
		"it stays as it is":           {withFinalizers(many, false), withFinalizers(many, false), false},
		"it shrinks":                  {withFinalizers(many, false), withFinalizers(many-1, false), false},
		"its deletion begins":         {withFinalizers(many, false), withFinalizers(many, true), false},
		"it loses a finalizer":        {withFinalizers(many, true), withFinalizers(many-1, true), false},
		"it grows when it is deleted": {withFinalizers(many, true), withFinalizers(many+1, true), true},
	} {
		b := &boundedStorage{Interface: holdingStorage{held: c.old}, resource: corev1.Resource("configmaps")}
		update := b.boundFields(t.Context(), "key", func(runtime.Object, storage.ResponseMeta) (runtime.Object, *uint64, error) {
			return c.updated, nil, nil
		})
		if _, _, err := update(c.old.DeepCopy(), storage.ResponseMeta{}); apierrors.IsForbidden(err) != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
