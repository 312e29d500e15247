// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package heapsize estimates how much memory Go values take, with all that they point to, and what of it informers keep of
// Kubernetes objects. Its functions may be called concurrently, for values that nobody changes meanwhile.
package heapsize

import (
	"reflect"
	"time"
)

// Of a map, as Go lays it out.
const (
	mapHeader = 48
	mapGroup  = 8 // slots that are made at once, of which 7 are used
)

// Of is about how many bytes of memory a value takes, with all that it points to. The value must be a tree: decoded objects
// are. What two parts of it share is counted twice, and a cycle never ends.
func Of(value any) int64 {
	v := reflect.ValueOf(value)
	if !v.IsValid() {
		return 0
	}
	return int64(v.Type().Size()) + Behind(v)
}

// Behind is what v points to, without v itself.
func Behind(v reflect.Value) int64 {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return int64(v.Elem().Type().Size()) + Behind(v.Elem())
	case reflect.String:
		return int64(v.Len())
	case reflect.Slice:
		return int64(v.Cap())*int64(v.Type().Elem().Size()) + behindElements(v)
	case reflect.Array:
		return behindElements(v)
	case reflect.Map:
		return behindMap(v)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() { // it points to its zone, which all share
			return 0
		}
		var size int64
		for i := range v.NumField() {
			size += Behind(v.Field(i))
		}
		return size
	}
	return 0
}

func behindElements(v reflect.Value) int64 {
	switch v.Type().Elem().Kind() {
	case reflect.Pointer, reflect.Interface, reflect.String, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
	default:
		return 0
	}
	var size int64
	for i := range v.Len() {
		size += Behind(v.Index(i))
	}
	return size
}

func behindMap(v reflect.Value) int64 {
	if v.IsNil() {
		return 0
	}
	size := int64(mapHeader)
	if n := int64(v.Len()); n > 0 {
		groups := (n + mapGroup - 2) / (mapGroup - 1)
		size += groups * (8 + mapGroup*int64(v.Type().Key().Size()+v.Type().Elem().Size()))
	}
	for i := v.MapRange(); i.Next(); {
		size += Behind(i.Key()) + Behind(i.Value())
	}
	return size
}
