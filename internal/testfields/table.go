// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testfields

import (
	"fmt"
	"reflect"
	"strings"
)

// Table says of types which of their fields Berth writes on a host. A field that is
// not in it is one that Berth never writes.
type Table map[reflect.Type]map[string]entry

type entry struct {
	why string
	// never is a value that Berth never writes although it writes the field.
	never any
	// whole says that all that is below the field is written as it is, or is the API
	// server's.
	whole bool
	// resources are those of which Berth writes the field, if not of all.
	resources []string
}

func (t Table) of(owner reflect.Type, name, resource string) (never any, written bool) {
	e, ok := t[owner][name]
	if len(e.resources) > 0 && !contains(e.resources, resource) {
		return nil, false
	}
	return e.never, ok
}

func contains(all []string, one string) bool {
	return strings.Contains(" "+strings.Join(all, " ")+" ", " "+one+" ")
}

// Check names the fields in the table that their types don't have.
func (t Table) Check() (unknown []string) {
	for of, fields := range t {
		known := map[string]bool{}
		collect(of, known)
		for name := range fields {
			if !known[name] {
				unknown = append(unknown, fmt.Sprintf("%s.%s", of, name))
			}
		}
	}
	return unknown
}

func collect(t reflect.Type, known map[string]bool) {
	for i := range t.NumField() {
		if name := jsonName(t.Field(i)); name != "" {
			known[name] = true
		} else if below := elements(t.Field(i).Type); below.Kind() == reflect.Struct {
			collect(below, known)
		}
	}
}

type row struct {
	of     reflect.Type
	fields map[string]entry
}

// of says which fields of a type Berth writes, and why.
func of[T any](why, fields string, more ...map[string]entry) row {
	r := row{reflect.TypeFor[T](), map[string]entry{}}
	for _, name := range strings.Fields(fields) {
		r.fields[name] = entry{why: why}
	}
	for _, m := range more {
		for name, e := range m {
			r.fields[name] = e
		}
	}
	return r
}

// but says of a field that Berth writes it, but never with a value.
func but(name string, never any, why string) map[string]entry {
	return map[string]entry{name: {why: why, never: never}}
}

// whole says of a field that nobody looks below it.
func whole(why, fields string) map[string]entry {
	out := map[string]entry{}
	for _, name := range strings.Fields(fields) {
		out[name] = entry{why: why, whole: true}
	}
	return out
}

// for says of a field that Berth writes it of some resources only.
func only(name, why string, resources ...string) map[string]entry {
	return map[string]entry{name: {why: why, whole: true, resources: resources}}
}

func table(rows ...row) Table {
	out := Table{}
	for _, r := range rows {
		if _, twice := out[r.of]; twice {
			panic(fmt.Sprintf("%s is in the table twice", r.of))
		}
		out[r.of] = r.fields
	}
	return out
}
