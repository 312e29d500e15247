// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Dropped names the fields of a pod's spec that a host was sent and did not take.
// An API server leaves out, without a word, what it is too old to know or was told
// not to offer; admission may remove more. What the host puts in is its own affair.
func Dropped(sent, made *corev1.Pod) []string {
	paths := behind("spec", lacks(reflect.ValueOf(made.Spec), reflect.ValueOf(sent.Spec)))
	slices.Sort(paths)
	return paths
}

// lacks returns the paths, from sent on, to what of it made lacks: an empty one if
// that is all. It names only what is lacking, as it is asked of each pod, and hardly
// any lacks something.
func lacks(made, sent reflect.Value) (paths []string) {
	switch sent.Kind() {
	case reflect.Struct:
		if sent.Type().Implements(reflect.TypeFor[json.Marshaler]()) {
			break // a quantity or a time, which is one value
		}
		for i := range sent.NumField() {
			if found := lacks(made.Field(i), sent.Field(i)); len(found) > 0 {
				paths = append(paths, behind(pathOf(sent.Type().Field(i)), found)...)
			}
		}
		return paths
	case reflect.Slice, reflect.Map:
		if sent.Len() == 0 {
			return nil
		}
	}
	switch {
	case sent.IsZero():
		return nil
	case made.IsZero():
		return []string{""}
	}
	switch sent.Kind() {
	case reflect.Pointer:
		return lacks(made.Elem(), sent.Elem())
	case reflect.Slice:
		for i := range sent.Len() {
			if found := itemLacks(made, sent, i); len(found) > 0 {
				at := nameOf(sent.Index(i))
				if at == "" {
					at = strconv.Itoa(i)
				}
				paths = append(paths, behind("["+at+"]", found)...)
			}
		}
	case reflect.Map:
		for _, key := range sent.MapKeys() {
			if !made.MapIndex(key).IsValid() {
				paths = append(paths, "."+key.String())
			}
		}
	}
	return paths
}

// itemLacks is [lacks] of an item of a list. Admission may have put its own before it,
// so that items with names are found by these.
func itemLacks(made, sent reflect.Value, i int) []string {
	item := sent.Index(i)
	name := nameOf(item)
	for j := range made.Len() {
		if name != "" && nameOf(made.Index(j)) == name {
			return lacks(made.Index(j), item)
		}
	}
	switch {
	case name == "" && made.Len() > sent.Len():
		return nil // there is no telling which became which
	case name == "" && i < made.Len():
		return lacks(made.Index(i), item)
	default:
		return []string{""}
	}
}

// nameOf is the name of an item, if it has one.
func nameOf(item reflect.Value) string {
	if item.Kind() == reflect.Struct {
		if name := item.FieldByName("Name"); name.Kind() == reflect.String {
			return name.String()
		}
	}
	return ""
}

// pathOf is how a field is reached: not at all, if it is a part of its struct.
func pathOf(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	if name == "" {
		return ""
	}
	return "." + name
}

func behind(path string, ends []string) []string {
	for i := range ends {
		ends[i] = path + ends[i]
	}
	return ends
}
