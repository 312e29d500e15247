// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package declaration

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

// addDefaults notes in the fields above declared ones which values an API server gives to the others beside those.
func addDefaults(nodes []*node, schema *apiextensionsv1.JSONSchemaProps) {
	for _, n := range nodes {
		below := property(schema, n.name)
		if n.list {
			below = itemOf(below)
		}
		if n.leaf == nil {
			n.defaults = defaults(below)
			addDefaults(n.below, below)
		}
	}
}

// setDefaults sets the defaults of the fields above declared ones in a value, as an API server does. Declared fields are complete: they come
// from an API server with the same definition.
func (n *node) setDefaults(value map[string]any) {
	for name, set := range n.defaults {
		if _, has := value[name]; !has {
			value[name] = runtime.DeepCopyJSONValue(set)
		}
	}
	for _, below := range n.below {
		items := []any{value[below.name]}
		if below.list {
			items, _ = value[below.name].([]any)
		}
		for _, item := range items {
			if fields, ok := item.(map[string]any); ok && below.leaf == nil {
				below.setDefaults(fields)
			}
		}
	}
}

// defaults returns the values that an API server gives to the fields of an object with a schema, by name.
func defaults(schema *apiextensionsv1.JSONSchemaProps) map[string]any {
	all := map[string]any{}
	if schema == nil {
		return all
	}
	for name, property := range schema.Properties {
		if value, ok := defaultOf(&property); ok {
			all[name] = value
		}
	}
	return all
}

// defaultOf returns the default of a schema, in which the defaults of its fields are set, as by an API server.
func defaultOf(schema *apiextensionsv1.JSONSchemaProps) (value any, ok bool) {
	if schema.Default == nil || json.Unmarshal(schema.Default.Raw, &value) != nil || value == nil {
		return nil, false
	}
	fill(value, schema)
	return value, true
}

// fill sets the defaults of a schema in a value.
func fill(value any, schema *apiextensionsv1.JSONSchemaProps) {
	switch value := value.(type) {
	case map[string]any:
		for name, set := range defaults(schema) {
			if _, has := value[name]; !has {
				value[name] = set
			}
		}
		for name, item := range value {
			if below := property(schema, name); below != nil {
				fill(item, below)
			}
		}
	case []any:
		for _, item := range value {
			if below := itemOf(schema); below != nil {
				fill(item, below)
			}
		}
	}
}

// property returns the schema of a field; nil if there is none.
func property(schema *apiextensionsv1.JSONSchemaProps, name string) *apiextensionsv1.JSONSchemaProps {
	if schema == nil {
		return nil
	}
	if below, ok := schema.Properties[name]; ok {
		return &below
	}
	if schema.AdditionalProperties != nil {
		return schema.AdditionalProperties.Schema
	}
	return nil
}

// itemOf returns the schema of the items of a list; nil if there is none.
func itemOf(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if schema == nil || schema.Items == nil {
		return nil
	}
	return schema.Items.Schema
}
