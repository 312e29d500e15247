// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Dropped names the fields of a pod's spec that a host was sent and did not take.
// An API server leaves out, without a word, what it is too old to know or was told
// not to offer; admission may remove more. What the host puts in, or changes, is its
// own affair.
func Dropped(sent, made *corev1.Pod) []string {
	paths := behind("spec", lacks(reflect.ValueOf(&made.Spec).Elem(), reflect.ValueOf(&sent.Spec).Elem()))
	slices.Sort(paths)
	return paths
}

// lacks returns the paths, from sent on, to what of it made lacks. Both are there. It
// names only what is lacking, as it is asked of each pod, and hardly any lacks something.
func lacks(made, sent reflect.Value) (paths []string) {
	switch sent.Kind() {
	case reflect.Pointer:
		return lacks(made.Elem(), sent.Elem())
	case reflect.Struct:
		if !inParts(sent.Type()) {
			return nil
		}
		for i := range sent.NumField() {
			if found := fieldLacks(made.Field(i), sent.Field(i)); len(found) > 0 {
				paths = append(paths, behind(pathOf(sent.Type().Field(i)), found)...)
			}
		}
	case reflect.Slice:
		return itemsLack(made, sent)
	case reflect.Map:
		for _, key := range sent.MapKeys() {
			if !made.MapIndex(key).IsValid() {
				paths = append(paths, "."+key.String())
			}
		}
	}
	return paths
}

// fieldLacks is [lacks] of a field, which is there unless it is empty: an empty path
// stands for the whole of it.
func fieldLacks(made, sent reflect.Value) []string {
	switch {
	case empty(sent):
		return nil
	case empty(made) && (sent.Kind() != reflect.Struct || !inParts(sent.Type())):
		return []string{""}
	default:
		return lacks(made, sent)
	}
}

// itemsLack is [lacks] of lists. Admission may have put items of its own anywhere:
// those with names are found by these, several of one name in their order.
func itemsLack(made, sent reflect.Value) (paths []string) {
	nameOf := names(sent.Type().Elem())
	places := make(map[string][]int, made.Len())
	for j := range made.Len() {
		name := nameOf(made.Index(j))
		places[name] = append(places[name], j)
	}
	for i := range sent.Len() {
		name, lacking := nameOf(sent.Index(i)), []string{""}
		if name == "" && made.Len() > sent.Len() {
			continue // there is no telling which became which
		}
		if left := places[name]; len(left) > 0 {
			places[name], lacking = left[1:], lacks(made.Index(left[0]), sent.Index(i))
		}
		if len(lacking) > 0 {
			paths = append(paths, behind("["+cmp.Or(name, strconv.Itoa(i))+"]", lacking)...)
		}
	}
	return paths
}

// names returns what tells the name of an item of a type, which is empty if it has none.
func names(item reflect.Type) func(reflect.Value) string {
	if item.Kind() == reflect.Struct {
		if name, ok := item.FieldByName("Name"); ok && name.Type.Kind() == reflect.String {
			return func(v reflect.Value) string { return v.FieldByIndex(name.Index).String() }
		}
	}
	return func(reflect.Value) string { return "" }
}

// inParts reports whether a struct is its fields: a quantity or a time is one value.
func inParts(t reflect.Type) bool { return !t.Implements(reflect.TypeFor[json.Marshaler]()) }

// empty reports whether an API server would not write a field at all.
func empty(v reflect.Value) bool {
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return v.Len() == 0
	}
	return v.IsZero()
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
