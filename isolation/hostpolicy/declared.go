// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/translate"
)

// Declared restricts what spaces' accounts write of the resource of a declaration with direction ToHost: copies of the space's objects, with
// the declared fields only. A field that is not declared may have the value that the schema has as its default, because the host sets it
// before it evaluates policies.
//
// Each field of the second level has a validation of its own, because the host limits what the evaluation of one costs.
func Declared(d *declaration.Declaration) Policy {
	root := d.Root()
	refuse := func(at, unless string) admissionv1.Validation {
		return Refuse(fmt.Sprintf("%s%s, as the ResourceSync %s lists them: see %s", OnlyFields, d.GVR.Resource, d.Name, at), "object == null || "+unless)
	}
	declared := declaredFields(root.Below)
	top := slices.Concat(parse("apiVersion kind metadata"), declared)
	if d.HasStatus { // which accounts have no right to write
		top = append(top, field{name: "status"})
	}
	all := []admissionv1.Validation{
		Refuse(fmt.Sprintf("a space's account may write %s only in version %s", d.GVR.Resource, d.GVR.Version), "object == null || request.resource.version == '"+d.GVR.Version+"'"),
		refuse("the top level", top.names("dyn(object)", furtherOf(root.Defaults)("object"), 0)),
	}
	for _, f := range declared {
		at := "object." + f.name
		unless := fmt.Sprintf("!has(%[1]s) || oldObject != null && has(oldObject.%[2]s) && dyn(oldObject.%[2]s) == dyn(%[1]s) || ", at, f.name)
		if f.below == nil || f.list {
			for _, term := range (fields{f}).terms("object", 0) {
				all = append(all, refuse(f.name, unless+term))
			}
			continue
		}
		all = append(all, refuse(f.name, unless+f.below.names("dyn("+at+")", f.further(at), 0)))
		for _, g := range f.below {
			for _, term := range (fields{g}).terms(at, 0) {
				all = append(all, refuse(f.name+"."+g.name, unless+term))
			}
		}
	}
	owners := "false"
	if d.NamesServices {
		owners = "f == 'ownerReferences' && " + ownedBy(d)
		all = append(all, Refuse("objects that name Services have to end with the ResourceSync "+d.Name+", and must have it as their only owner", "object == null || has(object.metadata.ownerReferences) && "+ownedBy(d)))
	}
	return Policy{
		Variables:   []admissionv1.Variable{listed("adds", AnnotationHostAdds)},
		Validations: joined(whose(), onlyIn(ownLabels(), "k.startsWith('"+translate.Domain+"/')", "false", owners, true), all),
	}
}

// ownedBy is an expression: the object has one owner, which is the ResourceSync of a declaration.
func ownedBy(d *declaration.Declaration) string {
	return fmt.Sprintf("size(object.metadata.ownerReferences) == 1 && object.metadata.ownerReferences.all(o, o.apiVersion == '%s' && o.kind == 'ResourceSync' && o.name == '%s' && !o.?blockOwnerDeletion.orValue(false))",
		v1alpha1.GroupVersion, d.Name)
}

// declaredFields returns the fields that an object may have.
func declaredFields(declared []declaration.Field) (all fields) {
	for _, d := range declared {
		f := field{name: d.Name, list: d.List}
		if len(d.Below) > 0 {
			f.below, f.others = declaredFields(d.Below), furtherOf(d.Defaults)
		} else {
			f.holds = typeRule(&d)
		}
		all = append(all, f)
	}
	return all
}

// typeRule returns what holds of the value of a declared field; nil if any value may be there.
func typeRule(d *declaration.Field) func(value string) string {
	switch d.Type {
	case v1alpha1.FieldObject, v1alpha1.FieldReturnedSecret:
		return func(value string) string { return rule("own", value) }
	case v1alpha1.FieldImported:
		return func(value string) string { return "!" + rule("own", value) }
	case v1alpha1.FieldSelector:
		return ownPods
	}
	if d.Rule == "" {
		return nil
	}
	return func(value string) string {
		// The rule was compiled by itself, so it closes what it opens. It may end with a comment.
		return "[" + value + "].all(self, (" + d.Rule + "\n))"
	}
}

// ownPods is an expression about a label selector, which selects only pods of the space.
func ownPods(value string) string {
	return fmt.Sprintf("dyn(%[1]s).all(f, f in ['matchLabels', 'matchExpressions']) && has(%[1]s.matchExpressions) && %[1]s.matchExpressions.exists(e, "+
		"e.key == '%[2]s' && e.operator == 'In' && e.?values.orValue([]) == [object.metadata.labels['%[2]s']])", value, translate.LabelSpace)
}

// furtherOf allows a field f, which is not declared, as it was before, and with its default.
func furtherOf(set map[string]any) func(value string) string {
	return func(value string) string {
		var allowed []string
		for _, name := range slices.Sorted(maps.Keys(set)) {
			allowed = append(allowed, fmt.Sprintf("f == %s && dyn(%s)[f] == %s", literal(name), value, literal(set[name])))
		}
		if path, ok := strings.CutPrefix(value, "object"); ok { // items of lists have no such path
			allowed = append(allowed, fmt.Sprintf("oldObject != null && dyn(oldObject)%s[?f] == optional.of(dyn(%s)[f])", strings.ReplaceAll(path, ".", ".?"), value))
		}
		return strings.Join(allowed, " || ")
	}
}
