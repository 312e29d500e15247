// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"math/rand/v2"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// Of a map, as Go lays it out.
const (
	mapHeader = 48
	mapGroup  = 8 // slots that are made at once, of which 7 are used
)

// sizeOf is about how much memory an object takes, with all it points to. Objects are trees, as they are decoded.
func sizeOf(object any) int64 {
	v := reflect.ValueOf(object)
	if !v.IsValid() {
		return 0
	}
	return int64(v.Type().Size()) + sizeBehind(v)
}

var timeType = reflect.TypeFor[time.Time]() //nolint:gochecknoglobals // Does not change.

// sizeBehind is what v points to.
func sizeBehind(v reflect.Value) int64 {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return int64(v.Elem().Type().Size()) + sizeBehind(v.Elem())
	case reflect.String:
		return int64(v.Len())
	case reflect.Slice:
		return int64(v.Cap())*int64(v.Type().Elem().Size()) + sizeOfElements(v)
	case reflect.Array:
		return sizeOfElements(v)
	case reflect.Map:
		return sizeOfMap(v)
	case reflect.Struct:
		if v.Type() == timeType { // it points to its zone, which all share
			return 0
		}
		var size int64
		for i := range v.NumField() {
			size += sizeBehind(v.Field(i))
		}
		return size
	}
	return 0
}

func sizeOfElements(v reflect.Value) int64 {
	switch v.Type().Elem().Kind() {
	case reflect.Pointer, reflect.Interface, reflect.String, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
	default:
		return 0
	}
	var size int64
	for i := range v.Len() {
		size += sizeBehind(v.Index(i))
	}
	return size
}

func sizeOfMap(v reflect.Value) int64 {
	if v.IsNil() {
		return 0
	}
	size := int64(mapHeader)
	if n := int64(v.Len()); n > 0 {
		groups := (n + mapGroup - 2) / (mapGroup - 1)
		size += groups * (8 + mapGroup*int64(v.Type().Key().Size()+v.Type().Elem().Size()))
	}
	for i := v.MapRange(); i.Next(); {
		size += sizeBehind(i.Key()) + sizeBehind(i.Value())
	}
	return size
}

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
		size += sizeBehind(items.Index(i))
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
