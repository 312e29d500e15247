// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/translate"
)

// Quotas are the host's ResourceQuotas. They are watched in all namespaces, but not synced, because an admin's own
// quota for a space has no label.
const Quotas = "resourcequotas"

// annotationLeft is on quotas in the shared watch, and never on the host: the names of the resources, and what is left
// of each.
const annotationLeft = translate.Domain + "/left"

// leftOf returns what syncers need of a quota. It may be called again with the result.
func leftOf(q *corev1.ResourceQuota) *corev1.ResourceQuota {
	out := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: q.Name, UID: q.UID, ResourceVersion: q.ResourceVersion}}
	left, ok := q.Annotations[annotationLeft]
	if spaceOf(q) == "" || !ok && q.Status.Hard == nil {
		return out
	}
	if !ok {
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(q.Status.Hard)), func(name corev1.ResourceName) bool { return name == v1alpha1.ResourceRecount })
		values := []string{Digest(map[string]string{"": strings.Join(resourceNames(names), " ")})[:8]}
		for _, name := range names {
			hard, used := q.Status.Hard[name], q.Status.Used[name]
			hard.Sub(used)
			values = append(values, hard.String())
		}
		left = strings.Join(values, " ")
	}
	out.Annotations = map[string]string{annotationLeft: left}
	return out
}

func resourceNames(names []corev1.ResourceName) (out []string) {
	for _, name := range names {
		out = append(out, string(name))
	}
	return out
}

// eased reports whether a quota may allow more than before: because more is left of a resource, because it limits other
// resources, or because it was deleted.
func eased(was, is client.Object) bool {
	switch {
	case was == nil:
		return false
	case is == nil:
		return true
	}
	before, after := strings.Fields(was.GetAnnotations()[annotationLeft]), strings.Fields(is.GetAnnotations()[annotationLeft])
	if len(before) != len(after) || len(after) > 0 && before[0] != after[0] {
		return true
	}
	for i := 1; i < len(after); i++ {
		had, err := resource.ParseQuantity(before[i])
		if err != nil {
			return true
		}
		if has, err := resource.ParseQuantity(after[i]); err != nil || has.Cmp(had) > 0 {
			return true
		}
	}
	return false
}

// watchQuotas makes the shared watch of quotas report those that allow more: to the syncers of spaces that are awake,
// and to sleeping spaces with objects that a quota rejected.
func (h *Host) watchQuotas(f *Router, changed, easedFor func(space string)) {
	f.Matters = func(was, is client.Object) bool {
		if changed != nil && is != nil && spaceOf(is) != "" && was != nil && was.GetAnnotations()[annotationLeft] != is.GetAnnotations()[annotationLeft] {
			changed(spaceOf(is))
		}
		more := eased(was, is)
		if more && easedFor != nil && spaceOf(cmp.Or(is, was)) != "" {
			easedFor(spaceOf(cmp.Or(is, was)))
		}
		return more
	}
	f.Changed = func(space string) {
		if _, short := h.short.Load(space); short {
			h.sleepers.changed(space)
		}
	}
	f.Follow = func(was, is client.Object) {
		if is == nil { // probably deleted with the space's namespace
			h.short.Delete(spaceOf(was))
		}
	}
}

// SetShort records whether a quota has rejected something of a space. Then, the space wakes when a quota allows more.
func (h *Host) SetShort(space string, short bool) {
	if short {
		h.short.Store(space, struct{}{})
	} else {
		h.short.Delete(space)
	}
}
