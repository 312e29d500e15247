// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package declaration

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/translate"
)

// Status copies to a copy of v what returns of the host's status. changed is false if v has it already.
func (d *Declaration) Status(space translate.Space, v, host *unstructured.Unstructured) (out *unstructured.Unstructured, changed bool) {
	var words []string
	for _, name := range d.Names(v1alpha1.FieldReturnedSecret, v) {
		words = append(words, ReturnedName(d.Name, space, v.GetNamespace(), name), name)
	}
	for _, name := range d.collected(v1alpha1.FieldObject, v) {
		words = append(words, space.HostName(v.GetNamespace(), name, NameLimit), name)
	}
	words = append(words, host.GetName(), v.GetName(), host.GetNamespace(), v.GetNamespace())
	r := returning{words: strings.NewReplacer(words...), observed: host.GetGeneration(), generation: v.GetGeneration()}
	return d.statusOf(v, host, r.value)
}

// statusOf copies the declared fields of the status.
func (d *Declaration) statusOf(v, host *unstructured.Unstructured, translated func(name string, value any) any) (out *unstructured.Unstructured, changed bool) {
	out = v.DeepCopy()
	for _, path := range d.status {
		value, found, err := unstructured.NestedFieldNoCopy(host.Object, path...)
		if err != nil || !found || value == nil {
			unstructured.RemoveNestedField(out.Object, path...)
			continue
		}
		if err := unstructured.SetNestedField(out.Object, translated(path[len(path)-1], value), path...); err != nil {
			out.Object["status"] = map[string]any{} // the tenant wrote something else there
			_ = unstructured.SetNestedField(out.Object, translated(path[len(path)-1], value), path...)
		}
	}
	if status, ok := out.Object["status"].(map[string]any); ok && len(status) == 0 && v.Object["status"] == nil {
		delete(out.Object, "status")
	}
	return out, !equality.Semantic.DeepEqual(v.Object["status"], out.Object["status"])
}

// returning translates values of a host object's status.
type returning struct {
	words                *strings.Replacer
	observed, generation int64
}

func (r returning) value(name string, value any) any {
	switch value := value.(type) {
	case string:
		return r.words.Replace(value)
	case int64:
		switch {
		case name != "observedGeneration" || value == 0:
			return value
		case value == r.observed:
			return r.generation
		default:
			return max(r.generation-1, 0)
		}
	case map[string]any:
		out := make(map[string]any, len(value))
		for key, item := range value {
			out[key] = r.value(key, item)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, item := range value {
			out[i] = r.value("", item)
		}
		return out
	default:
		return value
	}
}

// Show returns what a space shows of an object of the host, without its status. [Declaration.ShowStatus] copies that.
func (d *Declaration) Show(host *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: shown(d.root.below, host.Object)}
	if _, has := host.Object["spec"].(map[string]any); has && out.Object["spec"] == nil {
		out.Object["spec"] = map[string]any{} // most definitions require it
	}
	out.SetGroupVersionKind(d.Kind)
	out.SetName(host.GetName())
	out.SetLabels(map[string]string{translate.LabelManagedBy: translate.ManagedBy})
	return out
}

// shown returns the declared fields of a value.
func shown(nodes []*node, from map[string]any) map[string]any {
	out := map[string]any{}
	for _, n := range nodes {
		switch value := from[n.name].(type) {
		case nil:
		case []any:
			if n.leaf != nil {
				out[n.name] = runtime.DeepCopyJSONValue(value)
				continue
			}
			items := []any{}
			for _, item := range value {
				if fields, ok := item.(map[string]any); ok && n.list {
					items = append(items, shown(n.below, fields))
				}
			}
			out[n.name] = items
		case map[string]any:
			if n.leaf != nil {
				out[n.name] = runtime.DeepCopyJSONValue(value)
			} else if !n.list {
				out[n.name] = shown(n.below, value)
			}
		default:
			if n.leaf != nil {
				out[n.name] = value
			}
		}
	}
	return out
}

// ShowStatus is like [Declaration.Status], for an object of the host that a space shows.
func (d *Declaration) ShowStatus(v, host *unstructured.Unstructured) (out *unstructured.Unstructured, changed bool) {
	r := returning{words: strings.NewReplacer(), observed: host.GetGeneration(), generation: v.GetGeneration()}
	return d.statusOf(v, host, r.value)
}

// Shown returns the object that replaces the one that a space has, so that it is as the host's again, whatever the tenant changed.
func (d *Declaration) Shown(v, host *unstructured.Unstructured) *unstructured.Unstructured {
	out := d.Show(host)
	out.SetUID(v.GetUID())
	out.SetResourceVersion(v.GetResourceVersion())
	return out
}

// Shows reports whether an object of a space, apart from its metadata and a status with requests of its own, is what [Declaration.Show]
// returns for one of the host, with the defaults of the definition.
func (d *Declaration) Shows(v, host *unstructured.Unstructured) bool {
	have, want := maps.Clone(v.Object), d.Show(host).Object
	d.root.setDefaults(want)
	for _, content := range []map[string]any{have, want} {
		delete(content, "metadata")
		if d.HasStatus {
			delete(content, "status")
		}
	}
	return equality.Semantic.DeepEqual(have, want)
}
