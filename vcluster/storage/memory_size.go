// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"math/rand/v2"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-dev/berth/internal/heapsize"
)

// listSamples is how many objects of a list are measured.
const listSamples = 32

// sizeOfList is about how much a list takes, by some of its objects.
func sizeOfList(list runtime.Object) int64 {
	items, n := itemsOf(list)
	if n == 0 {
		return 0
	}
	var size int64
	step := max(1, n/listSamples)
	measured := int64(0)
	for i := rand.IntN(step); i < n; i += step { //nolint:gosec // nobody can foretell it
		size += heapsize.Behind(items.Index(i))
		measured++
	}
	return sizeOfListed(list) + size*int64(n)/max(1, measured)
}

// sizeOfListed is how much a list takes itself, without what its objects point to.
func sizeOfListed(list runtime.Object) int64 {
	items, n := itemsOf(list)
	if n == 0 {
		return 0
	}
	return int64(items.Cap()) * int64(items.Type().Elem().Size())
}

func itemsOf(list runtime.Object) (items reflect.Value, n int) {
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return reflect.Value{}, 0
	}
	items = reflect.ValueOf(pointer).Elem()
	return items, items.Len()
}
