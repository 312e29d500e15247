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

var quantity = reflect.TypeFor[resource.Quantity]()

// shape is what of a type can have quantities. A nil shape has none.
type shape struct {
	quantity bool
	members  map[string]*shape               // of an object, by their names in JSON
	fields   map[protowire.Number]namedShape // the same by their numbers in protobuf
	element  *shape                          // of a list, or of a map
	isMap    bool
}

type namedShape struct {
	name string
	*shape
}

// shapes remembers those of types.
type shapes map[reflect.Type]*shape

// of returns a type's shape, or nil if no value of it can have a quantity. A type that holds itself has no quantities below.
func (s shapes) of(t reflect.Type) *shape {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return nil
	}
	if known, ok := s[t]; ok {
		return known
	}
	s[t] = nil
	var made *shape
	switch {
	case t == quantity:
		made = &shape{quantity: true}
	case t.Kind() == reflect.Map, t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		if e := s.of(t.Elem()); e != nil {
			made = &shape{element: e, isMap: t.Kind() == reflect.Map}
		}
	case t.Kind() == reflect.Struct:
		made = s.ofStruct(t)
	}
	s[t] = made
	return made
}

func (s shapes) ofStruct(t reflect.Type) *shape {
	made := &shape{members: map[string]*shape{}, fields: map[protowire.Number]namedShape{}}
	for i := range t.NumField() {
		f := t.Field(i)
		inner := s.of(f.Type)
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
				made.fields[protowire.Number(n)] = namedShape{name, inner} //nolint:gosec // it is a few digits
			}
		}
	}
	if len(made.members) == 0 {
		return nil
	}
	return made
}

// member of an object, or of a map.
func (s *shape) member(name string) *shape {
	switch {
	case s == nil:
		return nil
	case s.isMap:
		return s.element
	}
	return s.members[name]
}

// item of a list.
func (s *shape) item() *shape {
	if s == nil || s.isMap {
		return nil
	}
	return s.element
}
