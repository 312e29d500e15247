// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quantities

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Type is where objects of a type can have quantities. A nil Type has none. It is safe for concurrent use.
type Type struct {
	quantity bool
	members  map[string]*Type               // of an object, by their names in JSON
	fields   map[protowire.Number]namedType // the same by their numbers in protobuf
	element  *Type                          // of a list, or of a map
	isMap    bool
}

type namedType struct {
	name string
	*Type
}

// TypeOf returns a Type, or nil if no value of a Go type can have a quantity.
func TypeOf(t reflect.Type) *Type { return known{}.of(t) }

// known are types that have been looked at. One that holds itself has no quantities below.
type known map[reflect.Type]*Type

func (k known) of(t reflect.Type) *Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return nil
	}
	if done, ok := k[t]; ok {
		return done
	}
	k[t] = nil
	var made *Type
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
		made = &Type{quantity: true}
	case t.Kind() == reflect.Map, t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		if e := k.of(t.Elem()); e != nil {
			made = &Type{element: e, isMap: t.Kind() == reflect.Map}
		}
	case t.Kind() == reflect.Struct:
		made = k.ofStruct(t)
	}
	k[t] = made
	return made
}

func (k known) ofStruct(t reflect.Type) *Type {
	made := &Type{members: map[string]*Type{}, fields: map[protowire.Number]namedType{}}
	for i := range t.NumField() {
		f := t.Field(i)
		inner := k.of(f.Type)
		if inner == nil {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" || slices.Contains(strings.Split(options, ","), "inline") {
			maps.Copy(made.members, inner.members)
		} else {
			made.members[name] = inner
		}
		if tag := strings.Split(f.Tag.Get("protobuf"), ","); len(tag) > 1 {
			if n, err := strconv.Atoi(tag[1]); err == nil {
				made.fields[protowire.Number(n)] = namedType{name, inner} //nolint:gosec // it is a few digits
			}
		}
	}
	if len(made.members) == 0 {
		return nil
	}
	return made
}

// member of an object, or of a map.
func (s *Type) member(name string) *Type {
	switch {
	case s == nil:
		return nil
	case s.isMap:
		return s.element
	}
	return s.members[name]
}

// item of a list.
func (s *Type) item() *Type {
	if s == nil || s.isMap {
		return nil
	}
	return s.element
}
