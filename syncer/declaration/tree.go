// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package declaration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/published/expression"
	"github.com/berth-dev/berth/syncer/resources"
)

// node is a field of an object: one that is declared, or one above such.
type node struct {
	name  string
	list  bool    // the field is a list, and what follows is about each of its items
	below []*node // none if the field itself is declared
	leaf  *leaf
	// defaults are the values that API servers give to fields of this one, by name.
	defaults map[string]any
}

// leaf is a field that is declared.
type leaf struct {
	kind     v1alpha1.SyncedFieldType
	resource string // of Imported, and of Object if it is another one
	rule     *expression.Rule
	text     string // of the rule
}

// namedResources are those whose objects a field of type Object may name. Their names on the host have the same form.
var namedResources = []string{resources.Services, resources.Of(resources.Gateways).GVR().GroupResource().String()}

// find returns the node of a name; nil if there is none.
func find(nodes []*node, name string) *node {
	i := slices.IndexFunc(nodes, func(n *node) bool { return n.name == name })
	if i < 0 {
		return nil
	}
	return nodes[i]
}

// add adds a declared field to the tree.
func (d *Declaration) add(f *v1alpha1.SyncedField, root *apiextensionsv1.JSONSchemaProps, at *field.Path) (errs field.ErrorList) {
	names := strings.Split(f.Path, ".")
	invalid := func(message string) {
		errs = append(errs, field.Invalid(at.Child("path"), f.Path, message))
	}
	switch first, _, _ := strings.Cut(names[0], "["); first {
	case "apiVersion", "kind", "metadata", "status":
		invalid("metadata and status are not copied with fields; list what returns of the status in spec.status")
		return errs
	}
	l := &leaf{kind: cmp.Or(f.Type, v1alpha1.FieldValue), resource: f.Resource, text: f.Rule}
	if schema, err := inSchema(root, names); err != nil {
		invalid(err.Error())
	} else if want := l.schemaType(); schema != nil && schema.Type != "" && want != "" && schema.Type != want {
		errs = append(errs, field.Invalid(at.Child("type"), f.Type, fmt.Sprintf("the field is of type %s in the definition, and this one is for %s; after a list, write [*]", schema.Type, want)))
	}
	if l.kind == v1alpha1.FieldObject && l.resource != "" && !slices.Contains(namedResources, l.resource) {
		errs = append(errs, field.NotSupported(at.Child("resource"), f.Resource, namedResources))
	}
	d.NamesServices = d.NamesServices || l.kind == v1alpha1.FieldObject && l.resource == resources.Services
	if f.Rule != "" {
		if err := l.compile(); err != nil {
			errs = append(errs, field.Invalid(at.Child("rule"), f.Rule, err.Error()))
		}
	}
	d.types[l.kind] = true
	level := &d.root.below
	for i, text := range names {
		name, list := strings.CutSuffix(text, "[*]")
		if reserved(name) {
			invalid(fmt.Sprintf("%q is a word of CEL, and can't be a name in a path", name))
			return errs
		}
		n, last := find(*level, name), i == len(names)-1
		switch {
		case n == nil:
			n = &node{name: name, list: list}
			*level = append(*level, n)
		case n.list != list:
			invalid(fmt.Sprintf("another path has %s as a list and this one doesn't, or the other way around; write %s[*] in all", name, name))
			return errs
		case last || n.leaf != nil:
			invalid("it is in another field that is listed, or has one in it; list only one of them")
			return errs
		}
		if last {
			n.leaf = l
		}
		level = &n.below
	}
	return errs
}

func (l *leaf) compile() error {
	compiler, err := compiler()
	if err != nil {
		return err
	}
	l.rule, err = compiler.Compile(l.text)
	return err
}

// reserved reports whether CEL doesn't take a name as that of a field.
func reserved(name string) bool {
	return slices.Contains([]string{"in", "true", "false", "null"}, name)
}

// schemaType returns the type that a field has in the definition; "" if any.
func (l *leaf) schemaType() string {
	switch l.kind {
	case v1alpha1.FieldValue:
		return ""
	case v1alpha1.FieldSelector:
		return "object"
	default:
		return "string"
	}
}

// inSchema returns the schema of a field, or an error if there is none at a path. A nil schema has all.
func inSchema(schema *apiextensionsv1.JSONSchemaProps, names []string) (*apiextensionsv1.JSONSchemaProps, error) {
	for i, text := range names {
		if schema == nil || schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields {
			return nil, nil
		}
		name, list := strings.CutSuffix(text, "[*]")
		next, ok := schema.Properties[name]
		switch {
		case ok:
		case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
			next = *schema.AdditionalProperties.Schema
		default:
			return nil, fmt.Errorf("the definition has no field %s; see 'kubectl explain'", strings.Join(names[:i+1], "."))
		}
		if list {
			if next.Type != "array" || next.Items == nil || next.Items.Schema == nil {
				return nil, fmt.Errorf("the field %s is no list; write it without [*]", strings.Join(names[:i+1], "."))
			}
			next = *next.Items.Schema
		} else if next.Type == "array" && i < len(names)-1 {
			return nil, fmt.Errorf("the field %s is a list; write %s[*]", strings.Join(names[:i+1], "."), name)
		}
		schema = &next
	}
	return schema, nil
}

// Field is a field of an object that is declared, or one above such, for policies of the host.
type Field struct {
	Name string
	// List says that the field is a list, and that what follows is about each of its items.
	List bool
	// Below are the declared fields in it. Without any, the field itself is declared.
	Below []Field
	// Defaults are the values that an API server gives to fields in it, declared or not, by name.
	Defaults map[string]any
	// Type and Rule are those of a declared field.
	Type v1alpha1.SyncedFieldType
	Rule string
}

// Root returns the object itself, with the declared fields in it.
func (d *Declaration) Root() Field {
	return Field{Below: fieldsOf(d.root.below), Defaults: d.root.defaults}
}

func fieldsOf(nodes []*node) (out []Field) {
	for _, n := range nodes {
		f := Field{Name: n.name, List: n.list, Below: fieldsOf(n.below), Defaults: n.defaults}
		if n.leaf != nil {
			f.Type, f.Rule = n.leaf.kind, n.leaf.text
		}
		out = append(out, f)
	}
	return out
}
