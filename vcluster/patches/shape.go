// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package patches

import (
	"reflect"
	"time"
)

// Shape is what counts of an object that a patch is applied to.
type Shape struct {
	Bytes   int64 // of the object as JSON, about
	Nested  int64 // each byte, as often as it is in a value
	Longest int64 // elements of a list
	Squares int64 // of the lengths of all lists
}

// ShapeOf returns the shape of an object in any version.
func ShapeOf(object any) Shape {
	var s Shape
	s.add(reflect.ValueOf(object))
	return s
}

const (
	// nameBytes is about what a field, a number, or the punctuation of an element takes in JSON.
	nameBytes = 12
	// timeBytes is what a time takes in JSON.
	timeBytes = 32
	// escapeBytes is what the longest escape takes besides the character that it stands for.
	escapeBytes = 5
	// Bytes are written in base64, if they are not JSON.
	base64Bytes, rawBytes = 4, 3
)

func (s *Shape) add(v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		before := s.Bytes
		defer func() { s.Nested += s.Bytes - before }()
	}
	switch v.Kind() {
	case reflect.Invalid:
	case reflect.Pointer, reflect.Interface:
		s.add(v.Elem())
	case reflect.String:
		s.addString(v.String())
	case reflect.Slice, reflect.Array:
		s.addList(v)
	case reflect.Map:
		for i := v.MapRange(); i.Next(); {
			s.Bytes += nameBytes
			s.add(i.Key())
			s.add(i.Value())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() { // which holds a time zone
			s.Bytes += timeBytes
			return
		}
		for i := range v.NumField() {
			if field := v.Field(i); !field.IsZero() {
				s.Bytes += nameBytes
				s.add(field)
			}
		}
	default:
		s.Bytes += nameBytes
	}
}

func (s *Shape) addString(v string) {
	s.Bytes += int64(len(v))
	for i := range len(v) {
		if c := v[i]; c < ' ' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			s.Bytes += escapeBytes
		}
	}
}

func (s *Shape) addList(v reflect.Value) {
	n := int64(v.Len())
	if v.Type().Elem().Kind() == reflect.Uint8 {
		s.addBytes(v)
		return
	}
	s.Longest = max(s.Longest, n)
	s.Squares += n * n
	s.Bytes += n
	for i := range v.Len() {
		s.add(v.Index(i))
	}
}

// addBytes adds what may be JSON, which an object of a built-in kind holds as it is written.
func (s *Shape) addBytes(v reflect.Value) {
	var t text
	for i := range v.Len() {
		t.add(byte(v.Index(i).Uint())) //nolint:gosec // it is a byte
	}
	s.Bytes += t.bytes * base64Bytes / rawBytes
	s.Nested += t.nested
	s.Longest = max(s.Longest, t.longest)
	s.Squares += t.squares
}
