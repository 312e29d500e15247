// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package fieldpath

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// In returns an error if objects of the Go type of like, which has the JSON tags of Kubernetes' types, have no such field.
func (p Path) In(like any) error {
	at := reflect.TypeOf(like)
	for depth, next := range p.steps {
		for at.Kind() == reflect.Pointer {
			at = at.Elem()
		}
		switch {
		case reflect.PointerTo(at).Implements(reflect.TypeFor[json.Marshaler]()): // it has a form of its own, such as a quantity
			return p.missing(depth, "a value without fields")
		case next.inList:
			if at.Kind() != reflect.Slice || at.Elem().Kind() == reflect.Uint8 { // bytes are a string in JSON
				return p.missing(depth, "not a list")
			}
			at = at.Elem()
		case at.Kind() == reflect.Map:
			at = at.Elem()
		case at.Kind() == reflect.Struct:
			found, ok := fieldOf(at, next.key)
			if !ok {
				return fmt.Errorf("path %q: %s has no field %s; correct the path", p.text, p.upTo(depth), next.key)
			}
			at = found
		case at.Kind() == reflect.Slice:
			return p.missing(depth, "a list; name an element, such as [0] or [*]")
		default:
			return p.missing(depth, "a value without fields")
		}
	}
	return nil
}

func (p Path) missing(depth int, is string) error {
	return fmt.Errorf("path %q: %s is %s; correct the path", p.text, p.upTo(depth), is)
}

// fieldOf returns the type of a struct's field by the name that it has in JSON.
func fieldOf(of reflect.Type, name string) (reflect.Type, bool) {
	for i := range of.NumField() {
		field := of.Field(i)
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == name {
			return field.Type, true
		}
		if field.Anonymous && tag == "" {
			if found, ok := fieldOf(field.Type, name); ok {
				return found, true
			}
		}
	}
	return nil, false
}
