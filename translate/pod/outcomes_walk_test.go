// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func one() resource.Quantity { return resource.MustParse("1") }

// site is one place in a pod's spec, and what was decided about it.
type site struct {
	path    []reflect.StructField // from the spec down
	outcome outcome
	never   any
}

func (s site) String() string {
	names := []string{"spec"}
	for _, f := range s.path {
		if name := jsonName(f); name != "" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ".")
}

// name is that of the field itself.
func (s site) name() string { return jsonName(s.path[len(s.path)-1]) }

// jsonName is empty for a field whose own fields are told in its place.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// elements is what a pointer, a list or a map holds, at last.
func elements(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

// isLeaf reports whether there is nothing below a type to decide about.
func isLeaf(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[metav1.Time]():
		return true
	}
	return t.Kind() != reflect.Struct
}

// tabled is the table by type and field.
type tabled map[reflect.Type]map[string]decision

func table(all []decided) tabled {
	out := tabled{}
	for _, d := range all {
		out[d.of] = map[string]decision{}
		for _, decision := range d.decisions {
			for _, field := range decision.fields {
				out[d.of][field] = decision
			}
		}
	}
	return out
}

// visit calls back with each place below t at which a decision ends, and says of
// each field that has none. owner is the type that speaks for t's fields.
func (all tabled) visit(owner, t reflect.Type, path []reflect.StructField, end func(site), undecided func(reflect.Type, string)) {
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(append([]reflect.StructField{}, path...), f)
		below := elements(f.Type)
		name := jsonName(f)
		if name == "" { // embedded
			speaks := owner
			if _, own := all[below]; own {
				speaks = below
			}
			all.visit(speaks, below, at, end, undecided)
			continue
		}
		d, ok := all[owner][name]
		switch {
		case !ok:
			undecided(owner, name)
		case d.outcome == refused, d.outcome == hostOnly, d.whole, isLeaf(below):
			end(site{at, d.outcome, d.never})
		default:
			all.visit(below, below, at, end, undecided)
		}
	}
}

// put makes what lies on the way to a place in spec, and calls set with it.
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

// find is what a spec has at a place: of lists, the last, as translation may put
// something in front. ok is false if there is nothing on the way.
func find(v reflect.Value, path []reflect.StructField) (found reflect.Value, ok bool) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice && len(path) > 0 {
		switch {
		case len(path) == 0:
			return v, true
		case v.Kind() == reflect.Pointer && !v.IsNil():
			v = v.Elem()
		case v.Kind() == reflect.Slice && v.Len() > 0:
			v = v.Index(v.Len() - 1)
		default:
			return v, false
		}
	}
	if len(path) == 0 {
		return v, true
	}
	return find(v.FieldByIndex(path[0].Index), path[1:])
}

// accompany sets what a thing needs beside the field that is looked at.
func accompany(thing any) {
	switch x := thing.(type) {
	case *corev1.Toleration:
		x.Key = corev1.TaintNodeNotReady
	case *corev1.PodAffinityTerm:
		x.TopologyKey, x.LabelSelector = corev1.LabelHostname, &metav1.LabelSelector{}
	case *corev1.WeightedPodAffinityTerm:
		accompany(&x.PodAffinityTerm)
	case *corev1.TopologySpreadConstraint:
		x.TopologyKey, x.LabelSelector = corev1.LabelHostname, &metav1.LabelSelector{}
	case *corev1.ObjectFieldSelector:
		x.FieldPath = "metadata.name"
	case *corev1.Sysctl:
		x.Name = "net.ipv4.ip_unprivileged_port_start"
	case *corev1.SeccompProfile:
		x.Type = corev1.SeccompProfileTypeRuntimeDefault
	case *corev1.AppArmorProfile:
		x.Type = corev1.AppArmorProfileTypeRuntimeDefault
	case *metav1.LabelSelectorRequirement:
		x.Key, x.Operator = "another", metav1.LabelSelectorOpExists
	case *corev1.PodDNSConfigOption:
		x.Name = "edns0"
	}
}

// fillSample sets a value that a field may have, other than the one it has.
func fillSample(v reflect.Value) {
	samples := []any{
		corev1.ResourceList{corev1.ResourceCPU: one()}, []corev1.Capability{"NET_BIND_SERVICE"}, one(), intstr.FromInt32(7), corev1.DNSDefault,
		corev1.AppArmorProfileTypeLocalhost, corev1.SeccompProfileTypeLocalhost, corev1.DefaultProcMount,
	}
	for _, sample := range samples {
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
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillSample(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillSample(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillSample(key)
		fillSample(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	}
}
