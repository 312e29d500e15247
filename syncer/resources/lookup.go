// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"reflect"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// byName maps names to resources. It is made once, because it is used several times for each synced object.
var byName = sync.OnceValue(func() map[string]Resource {
	all := map[string]Resource{}
	for _, r := range Table() {
		all[r.Name] = r
	}
	return all
})

// Of returns the resource with this name; the zero value if there is none.
func Of(name string) Resource { return byName()[name] }

// byType maps the types of resources that are synced to the host to these resources.
var byType = sync.OnceValue(func() map[reflect.Type]Resource {
	all := map[reflect.Type]Resource{}
	for _, r := range Table() {
		if r.Direction == ToHost {
			all[reflect.TypeOf(r.Type)] = r
		}
	}
	return all
})

// ToHostOf returns the resource that is synced to the host as objects of o's type; ok is false if there is none.
func ToHostOf(o client.Object) (r Resource, ok bool) {
	r, ok = byType()[reflect.TypeOf(o)]
	return r, ok
}

// classTypes are the types of the host's classes.
var classTypes = sync.OnceValue(func() map[reflect.Type]bool {
	all := map[reflect.Type]bool{}
	for _, r := range Table() {
		if r.Class {
			all[reflect.TypeOf(r.Type)] = true
		}
	}
	return all
})

// IsClass reports whether an object is a class, made by the host's admin or by the tenant.
func IsClass(o client.Object) bool { return classTypes()[reflect.TypeOf(o)] }

// find returns the row with this name.
func find(name string) (Resource, bool) {
	k, ok := byName()[name]
	return k, ok
}
