// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testfields

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Site is a field somewhere in an object.
type Site struct {
	path []reflect.StructField // from the object down
	// Never is set where the field is one that Berth writes, but not with this value.
	Never any
}

func (s Site) String() string {
	var names []string
	for _, f := range s.path {
		if name := jsonName(f); name != "" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ".")
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// Sites are the fields below a type of objects that Berth never writes, and those of
// which it never writes a value. writes says which it writes, by the type that has
// them; unknown is called with what it says of fields that a type does not have.
func Sites(object reflect.Type, writes Table, resource string) (sites []Site) {
	w := walker{writes: writes, resource: resource}
	w.walk(object, object, nil)
	return w.sites
}

type walker struct {
	writes   Table
	resource string
	sites    []Site
}

// SitesAt are Sites below a field of the object, of which Berth writes all by a request
// of its own.
func SitesAt(object reflect.Type, writes Table, resource string, names ...string) []Site {
	w := walker{writes: writes, resource: resource}
	var path []reflect.StructField
	at := object
	for _, name := range names {
		f, ok := elements(at).FieldByName(name)
		if !ok {
			panic(fmt.Sprintf("%s has no field %s", at, name))
		}
		path, at = append(path, f), elements(f.Type)
	}
	w.walk(at, at, path)
	return w.sites
}

func (w *walker) walk(owner, t reflect.Type, path []reflect.StructField) {
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Type == reflect.TypeFor[metav1.TypeMeta]() {
			continue
		}
		at := append(slices.Clone(path), f)
		below := elements(f.Type)
		name := jsonName(f)
		if name == "" { // its fields are told in its place
			w.walk(owner, below, at)
			continue
		}
		never, written := w.writes.of(owner, name, w.resource)
		switch {
		case !written:
			w.sites = append(w.sites, Site{path: at})
		case never != nil:
			w.sites = append(w.sites, Site{path: at, Never: never})
		case isLeaf(below) || w.writes[owner][name].whole:
		default:
			w.walk(below, below, at)
		}
	}
}

// elements is what a pointer, a list or a map holds, at last.
func elements(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

func isLeaf(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.Duration](),
		reflect.TypeFor[runtime.RawExtension]():
		return true
	}
	return t.Kind() != reflect.Struct
}

// Without makes what lies on the way to the field, but not the field.
func (s Site) Without(object any) {
	put(reflect.ValueOf(object).Elem(), s.path, func(reflect.Value) {})
	mend(object)
}

// Set sets the field to a value, the one that Berth never writes if there is one.
func (s Site) Set(object any) {
	put(reflect.ValueOf(object).Elem(), s.path, func(v reflect.Value) {
		if s.Never != nil {
			for v.Kind() == reflect.Pointer {
				v.Set(reflect.New(v.Type().Elem()))
				v = v.Elem()
			}
			v.Set(reflect.ValueOf(s.Never).Convert(v.Type()))
			return
		}
		Fill(v)
	})
	mend(object)
}

// IsSet reports whether an object, as an API server answered it, has the value that
// Set gave the field.
func (s Site) IsSet(object, answer any) bool {
	want, _ := find(reflect.ValueOf(object).Elem(), s.path)
	have, there := find(reflect.ValueOf(answer).Elem(), s.path)
	return there && fmt.Sprint(deref(want)) == fmt.Sprint(deref(have))
}

func deref(v reflect.Value) any {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return v.Interface()
}

// put makes what lies on the way to a place, and calls set with it.
func put(v reflect.Value, path []reflect.StructField, set func(reflect.Value)) {
	if len(path) == 0 {
		set(v)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
			accompany(v.Interface())
		}
		put(v.Elem(), path, set)
	case reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			accompany(v.Index(0).Addr().Interface())
		}
		put(v.Index(0), path, set)
	default:
		put(v.FieldByIndex(path[0].Index), path[1:], set)
	}
}

func find(v reflect.Value, path []reflect.StructField) (found reflect.Value, ok bool) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice && len(path) > 0 {
		switch {
		case len(path) == 0:
			return v, true
		case v.Kind() == reflect.Pointer && !v.IsNil():
			v = v.Elem()
		case v.Kind() == reflect.Slice && v.Len() > 0:
			v = v.Index(0)
		default:
			return v, false
		}
	}
	if len(path) == 0 {
		return v, true
	}
	return find(v.FieldByIndex(path[0].Index), path[1:])
}

// Fill sets a value that a field may have, other than the one it has.
func Fill(v reflect.Value) {
	for _, sample := range []any{
		resource.MustParse("1"), intstr.FromInt32(7), metav1.Unix(1e9, 0), corev1.ResourceList{"example.com/gpu": resource.MustParse("1")},
		runtime.RawExtension{Raw: []byte(`{"a":"b"}`)}, *metav1.NewFieldsV1(`{}`),
	} {
		if reflect.TypeOf(sample) == v.Type() {
			v.Set(reflect.ValueOf(sample))
			return
		}
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("sample")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8:
		v.SetUint(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		Fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		Fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		Fill(key)
		Fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				Fill(v.Field(i))
			}
		}
	default:
		panic(fmt.Sprintf("no sample of a %s", v.Type()))
	}
}
