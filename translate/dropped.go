// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Dropped names the fields of a pod's spec that a host was sent and did not take.
// An API server leaves out, without a word, what it is too old to know or was told
// not to offer; admission may remove more. What the host puts in is its own affair.
func Dropped(sent, made *corev1.Pod) []string {
	if !mayLack(reflect.ValueOf(&made.Spec), reflect.ValueOf(&sent.Spec)) {
		return nil // as nearly always, and many times cheaper to know
	}
	return dropped("spec", asMap(&sent.Spec), asMap(&made.Spec))
}

// mayLack reports whether made may lack something that sent has. Whether it does
// is for [dropped] to say, which looks lists of other lengths through.
func mayLack(made, sent reflect.Value) bool {
	switch sent.Kind() {
	case reflect.Pointer:
		return !sent.IsNil() && (made.IsNil() || mayLack(made.Elem(), sent.Elem()))
	case reflect.Struct:
		if sent.NumField() == 0 || !sent.Type().Field(0).IsExported() {
			break // a quantity or a time, which is one value
		}
		for i := range sent.NumField() {
			if mayLack(made.Field(i), sent.Field(i)) {
				return true
			}
		}
		return false
	case reflect.Slice:
		if made.Len() != sent.Len() {
			return sent.Len() > 0
		}
		for i := range sent.Len() {
			if named(made.Index(i)) != named(sent.Index(i)) || mayLack(made.Index(i), sent.Index(i)) {
				return true
			}
		}
		return false
	case reflect.Map:
		for _, key := range sent.MapKeys() {
			if !made.MapIndex(key).IsValid() {
				return true
			}
		}
		return false
	}
	return made.IsZero() && !sent.IsZero()
}

func asMap(spec *corev1.PodSpec) map[string]any {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return nil // there is no spec that can't be written as JSON
	}
	return fields
}

func dropped(path string, before, after any) (paths []string) {
	switch before := before.(type) {
	case map[string]any:
		after, _ := after.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(before)) {
			if _, there := after[name]; !there {
				paths = append(paths, path+"."+name)
				continue
			}
			paths = append(paths, dropped(path+"."+name, before[name], after[name])...)
		}
	case []any:
		after, _ := after.([]any)
		for i, item := range before {
			name := nameOf(item)
			at := path + "[" + cmp.Or(name, strconv.Itoa(i)) + "]"
			j := i
			switch {
			case name != "": // admission may have put its own before it
				j = slices.IndexFunc(after, func(other any) bool { return nameOf(other) == name })
			case len(before) < len(after): // there is no telling which became which
				continue
			}
			if j < 0 || j >= len(after) {
				paths = append(paths, at)
				continue
			}
			paths = append(paths, dropped(at, item, after[j])...)
		}
	}
	return paths
}

func nameOf(item any) string {
	fields, _ := item.(map[string]any)
	name, _ := fields["name"].(string)
	return name
}

// named is the name of an item that has one.
func named(item reflect.Value) string {
	if item.Kind() == reflect.Struct {
		if name := item.FieldByName("Name"); name.Kind() == reflect.String {
			return name.String()
		}
	}
	return ""
}
