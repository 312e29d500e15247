// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"reflect"
	"strings"
	"time"
)

const (
	// indentedCopies is how often an answer with its spaces is in memory while the buffer that it is written to grows.
	indentedCopies = 3
	// spacesPerLevel is what a level adds to a line.
	spacesPerLevel = 2
	// listLevels are those that a list or a Table adds to its objects.
	listLevels = 4
)

// indentationOf is about how many spaces and line breaks an object has in JSON with spaces, or in YAML, besides what is
// between them. For YAML, all spaces and line breaks in texts count, where lines may begin as well.
func indentationOf(object any) int64 {
	v := reflect.ValueOf(object)
	if !v.IsValid() {
		return 0
	}
	return linesOf(v, listLevels)
}

// lines is what n lines of a level begin with, and end with.
func lines(n, level int) int64 { return int64(n) * int64(spacesPerLevel*level+1) }

// linesOf counts the lines of v, without the first, which begins on that of its key.
func linesOf(v reflect.Value, level int) int64 {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return linesOf(v.Elem(), level)
	case reflect.String:
		s := v.String()
		return lines(strings.Count(s, " ")+strings.Count(s, "\n"), level)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return 0 // it is a text of one line
		}
		n := lines(v.Len()+1, level+1)
		for i := range v.Len() {
			n += linesOf(v.Index(i), level+1)
		}
		return n
	case reflect.Map:
		n := lines(v.Len()+1, level+1)
		for i := v.MapRange(); i.Next(); {
			n += linesOf(i.Value(), level+1)
		}
		return n
	case reflect.Struct:
		return linesOfStruct(v, level)
	}
	return 0
}

func linesOfStruct(v reflect.Value, level int) int64 {
	if v.Type() == reflect.TypeFor[time.Time]() {
		return 0
	}
	n := lines(1, level+1)
	for i := range v.NumField() {
		field := v.Field(i)
		if field.IsZero() {
			continue // most are left out; those that are not are in few types, none of which is deep
		}
		n += lines(1, level+1)
		if field.Kind() == reflect.Slice && v.Type().Field(i).Name == "Raw" {
			n += linesOfJSON(field.Bytes(), level)
			continue
		}
		n += linesOf(field, level+1)
	}
	return n
}

// linesOfJSON counts those of JSON that an object holds as it is: an encoder adds spaces to it, too.
func linesOfJSON(document []byte, level int) int64 {
	var n int64
	var inString, escaped bool
	for _, c := range document {
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped, inString = c == '\\', c != '"'
			if c == ' ' || escaped {
				n += lines(1, level)
			}
		case c == '"':
			inString = true
		case c == '{', c == '[':
			level++
			n += lines(1, level)
		case c == '}', c == ']':
			n += lines(1, level)
			level--
		case c == ',':
			n += lines(1, level)
		}
	}
	return n
}
