// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"maps"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Of counts an object in any version.
func Of(object runtime.Object) Count {
	var c Count
	if u, ok := object.(runtime.Unstructured); ok {
		content := u.UnstructuredContent()
		c.owners = length(content, "metadata", "ownerReferences")
		c.managers = length(content, "metadata", "managedFields")
		for name, value := range content {
			if m, ok := value.(map[string]any); ok && name == "metadata" {
				m = maps.Clone(m)
				delete(m, "managedFields") // an API server has written them, in their order
				value = m
			}
			c.addAny(value, int64(len(name))+1, name)
		}
		return c
	}
	if m, err := meta.Accessor(object); err == nil {
		c.owners, c.managers = int64(len(m.GetOwnerReferences())), int64(len(m.GetManagedFields()))
	}
	c.addValue(reflect.ValueOf(object), 0, "")
	return c
}

func length(content map[string]any, path ...string) int64 {
	value, _, _ := unstructured.NestedFieldNoCopy(content, path...)
	list, _ := value.([]any)
	return int64(len(list))
}

// addAny counts what is in a decoded JSON value.
func (c *Count) addAny(v any, path int64, name string) {
	switch v := v.(type) {
	case map[string]any:
		var n int64
		for key, value := range v {
			n++
			at := path + int64(len(key)) + 1
			c.addElement(at, n, name)
			c.addAny(value, at, key)
		}
	case []any:
		for i, value := range v {
			c.addElement(path+indexBytes, int64(i)+1, name)
			c.addAny(value, path+indexBytes, name)
		}
	}
}

// addValue counts what is in a value of a Go type.
func (c *Count) addValue(v reflect.Value, path int64, name string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			c.addValue(v.Elem(), path, name)
		}
	case reflect.Map:
		c.addMap(v, path, name)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			c.addElement(path+indexBytes, int64(i)+1, name)
			c.addValue(v.Index(i), path+indexBytes, name)
		}
	case reflect.Struct:
		c.addStruct(v, path)
	default:
	}
}

func (c *Count) addMap(v reflect.Value, path int64, name string) {
	var n int64
	for i := v.MapRange(); i.Next(); {
		n++
		at, key := path+indexBytes, name
		if i.Key().Kind() == reflect.String {
			key = i.Key().String()
			at = path + int64(len(key)) + 1
		}
		c.addElement(at, n, name)
		c.addValue(i.Value(), at, key)
	}
}

func (c *Count) addStruct(v reflect.Value, path int64) {
	switch v.Type() {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return
	case reflect.TypeFor[runtime.RawExtension]():
		d := NewDocument(false)
		_, _ = d.Write(v.FieldByName("Raw").Bytes())
		c.join(d.Count())
		return
	}
	for i := range v.NumField() {
		if field := v.Type().Field(i); field.IsExported() && !v.Field(i).IsZero() {
			at := path + int64(len(field.Name)) + 1
			c.addElement(at, 1, field.Name)
			c.addValue(v.Field(i), at, strings.ToLower(field.Name[:1])+field.Name[1:])
		}
	}
}

func (c *Count) join(o Count) {
	c.elements += o.elements
	c.squares += o.squares
	c.paths += o.paths
	if o.longest > c.longest {
		c.longest, c.name = o.longest, o.name
	}
}
