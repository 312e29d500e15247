// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"fmt"
	"reflect"
	"strings"
)

// walk calls visit with every value below v, each with its path. It does not
// look into unexported fields.
func walk(v reflect.Value, path string, visit func(path string, v reflect.Value)) {
	visit(path, v)
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			walk(v.Elem(), path, visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				walk(v.Field(i), path+"."+f.Name, visit)
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			walk(key, path+".keys", visit)
			walk(v.MapIndex(key), fmt.Sprintf("%s[%v]", path, key), visit)
		}
	}
}

// FindAll returns every T below object by its path.
func FindAll[T any](object any) map[string]T {
	found := map[string]T{}
	walk(reflect.ValueOf(object), "", func(path string, v reflect.Value) {
		if t, ok := v.Interface().(T); ok {
			found[path] = t
		}
	})
	return found
}

// CheckNoSharedMemory fails where a change of one object would show in the
// other: translation reads from caches that everyone shares.
func CheckNoSharedMemory(t interface{ Errorf(string, ...any) }, argument, result any) {
	owned := map[uintptr]string{}
	each := func(object any, do func(path string, at uintptr)) {
		walk(reflect.ValueOf(object), "", func(path string, v reflect.Value) {
			switch v.Kind() {
			case reflect.Pointer:
				if !v.IsNil() && v.Elem().Type().Size() > 0 {
					do(path, v.Pointer())
				}
			case reflect.Map:
				if !v.IsNil() {
					do(path, v.Pointer())
				}
			case reflect.Slice:
				if v.Cap() > 0 && v.Type().Elem().Size() > 0 {
					do(path, v.Pointer())
				}
			}
		})
	}
	each(argument, func(path string, at uintptr) { owned[at] = path })
	each(result, func(path string, at uintptr) {
		if of, shared := owned[at]; shared {
			t.Errorf("the result's %s is the argument's %s", path, of)
		}
	})
}

// CheckSilent fails where any string of object, key or value, holds a secret.
func CheckSilent(t interface{ Errorf(string, ...any) }, object any, secrets ...string) {
	walk(reflect.ValueOf(object), "", func(path string, v reflect.Value) {
		if v.Kind() != reflect.String {
			return
		}
		for _, secret := range secrets {
			if secret != "" && strings.Contains(v.String(), secret) {
				t.Errorf("%s tells %q: %q", path, secret, v.String())
			}
		}
	})
}
