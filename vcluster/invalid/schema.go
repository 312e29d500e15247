// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package invalid

import (
	"math"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const (
	// valueErrors is about how many errors a schema has for a value, besides those counted one by one.
	valueErrors = 4
	// messageBytes is the longest message that an expression makes.
	messageBytes = 5 << 10
	// errorBytes is what an error has besides its path and its message.
	errorBytes = 32
)

// schemaTree is what a part of a custom resource's schema has for errors.
type schemaTree struct {
	properties map[string]*schemaTree
	others     *schemaTree // other properties
	items      *schemaTree
	// alternatives are other schemas for the same value: allOf, anyOf, oneOf and not.
	alternatives []*schemaTree
	// errors are about how many there can be for one value, and enum is how long the list of its allowed values is.
	errors, enum int
	rules        int // of CEL
	messages     int // bytes of the messages of all rules
	// What a part of it has, at any depth.
	hasRules, hasLists bool
	mostErrors         int
	parts              int // itself included
}

func newSchema(s *apiextensionsv1.JSONSchemaProps) *schemaTree {
	n := &schemaTree{errors: valueErrors + len(s.Required), rules: len(s.XValidations), parts: 1}
	n.hasRules = n.rules > 0
	n.hasLists = s.XListType != nil || s.XEmbeddedResource
	for _, v := range s.Enum {
		n.enum += len(v.Raw)
	}
	for i := range s.XValidations {
		n.messages += errorBytes + messageOf(&s.XValidations[i])
	}
	for _, list := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			n.addAlternative(&list[i])
		}
	}
	if s.Not != nil {
		n.addAlternative(s.Not)
	}
	n.mostErrors = max(n.mostErrors, n.errors)
	if len(s.Properties) > 0 {
		n.properties = make(map[string]*schemaTree, len(s.Properties))
		for name, p := range s.Properties {
			n.properties[name] = n.add(newSchema(&p))
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		n.others = n.add(newSchema(s.AdditionalProperties.Schema))
	}
	if s.Items != nil && s.Items.Schema != nil {
		n.items = n.add(newSchema(s.Items.Schema))
	}
	return n
}

func messageOf(r *apiextensionsv1.ValidationRule) int {
	switch {
	case r.MessageExpression != "":
		return max(messageBytes, len(r.Message))
	case r.Message != "":
		return len(r.Message)
	}
	return len(r.Rule)
}

func (n *schemaTree) addAlternative(s *apiextensionsv1.JSONSchemaProps) {
	a := n.add(newSchema(s))
	n.alternatives = append(n.alternatives, a)
	n.errors += a.errors
	n.enum += a.enum
}

func (n *schemaTree) add(part *schemaTree) *schemaTree {
	n.hasRules = n.hasRules || part.hasRules
	n.hasLists = n.hasLists || part.hasLists
	n.mostErrors = max(n.mostErrors, part.mostErrors)
	n.parts += part.parts
	return part
}

// ruled counts the rules that values of an object are validated with.
type ruled struct{ rules, bytes int64 }

// steps are the rules times the bytes, or what is as good as without a limit.
func (r *ruled) steps() int64 {
	if r.bytes > 0 && r.rules > math.MaxInt64/r.bytes {
		return math.MaxInt64
	}
	return r.rules * r.bytes
}

// add counts those of a value, whose path has a length.
func (r *ruled) add(n *schemaTree, value any, path int) {
	if n == nil || !n.hasRules || value == nil {
		return
	}
	r.rules += int64(n.rules)
	r.bytes += int64(n.messages + n.rules*path)
	for _, a := range n.alternatives {
		r.add(a, value, path)
	}
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			r.add(n.property(name), v, path+len(name)+1)
		}
	case []any:
		for _, v := range value {
			r.add(n.items, v, path+errorBytes/4)
		}
	}
}
