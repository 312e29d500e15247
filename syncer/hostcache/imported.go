// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"iter"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// Imported returns a class of the host, if the admin lets a space with these options import it.
func Imported[T client.Object](h *Host, options resources.SyncOptions, resource, name string) (class T, ok bool) {
	class, ok = Get[T](h, resource, "", name)
	if !ok || !options.Selects(resource).Matches(labels.Set(class.GetLabels())) {
		return class, false
	}
	return class, class.GetLabels()[translate.LabelSpace] == "" // else exported by a tenant, whatever its labels are
}

// AllImported iterates over the host's classes that a space with these options imports.
func AllImported[T client.Object](h *Host, options resources.SyncOptions, resource string) iter.Seq[T] {
	return func(yield func(T) bool) {
		f := h.Routers[resource]
		if f == nil {
			return // it is disabled
		}
		for _, item := range f.All() {
			if o, ok := item.(client.Object); ok {
				if class, ok := Imported[T](h, options, resource, o.GetName()); ok && !yield(class) {
					return
				}
			}
		}
	}
}
