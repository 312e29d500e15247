// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/published/expression"
)

// object is a PublishedObject, as little of it as is needed.
type object struct {
	name, publication, resourceVersion string
	namespaces                         v1alpha1.PublicationNamespaces
	id                                 identity
	// shared is the copy of all spaces, if no fields are set.
	shared *unstructured.Unstructured
	// json is the source if fields are set: each space has a copy of its own, and the store keeps none.
	json   []byte
	source []v1alpha1.PublicationField // what fields was compiled from
	fields Fields
	// err is why there are no copies.
	err error
}

// identity is what no two copies in a space may have in common.
type identity struct {
	kind            schema.GroupKind
	namespace, name string
}

// newObject reads a PublishedObject. Siblings are those of the same publication, which have the same fields as a rule.
func newObject(compiler *expression.Compiler, from *v1alpha1.PublishedObject, siblings map[string]*object) *object {
	o := &object{
		name: from.Name, publication: from.Labels[v1alpha1.LabelPublication], resourceVersion: from.ResourceVersion, namespaces: from.Spec.Namespaces,
		source: from.Spec.Fields,
	}
	content, err := decode(from.Spec.Object.Raw)
	if err != nil {
		o.err = err
		return o
	}
	u := &unstructured.Unstructured{Object: content}
	o.id = identity{kind: u.GroupVersionKind().GroupKind(), namespace: u.GetNamespace(), name: u.GetName()}
	if len(o.source) == 0 {
		o.shared = u
		return o
	}
	o.json = from.Spec.Object.Raw
	for _, sibling := range siblings {
		if equality.Semantic.DeepEqual(sibling.source, o.source) {
			o.source, o.fields, o.err = sibling.source, sibling.fields, sibling.err
			if o.fields != nil {
				return o
			}
		}
	}
	o.fields, o.err = CompileFields(compiler, o.source)
	return o
}

func decode(raw []byte) (map[string]any, error) {
	var content map[string]any
	if err := json.Unmarshal(raw, &content); err != nil {
		return nil, fmt.Errorf("read object: %w", err)
	}
	u := unstructured.Unstructured{Object: content}
	if u.GetAPIVersion() == "" || u.GetKind() == "" || u.GetName() == "" {
		return nil, errors.New("the object has no apiVersion, kind, or name")
	}
	return content, nil
}

// render returns the copy for a space.
func (o *object) render(ctx context.Context, tenant, space expression.Subject) (access.Published, error) {
	result := access.Published{Object: o.shared, Publication: o.publication, Namespaces: o.namespaces}
	if o.err != nil || o.shared != nil {
		return result, o.err
	}
	source, err := decode(o.json)
	if err != nil {
		return result, err
	}
	copied, err := decode(o.json)
	if err != nil {
		return result, err
	}
	result.Object = &unstructured.Unstructured{Object: copied}
	return result, o.fields.Render(ctx, copied, expression.Input{Tenant: tenant, Space: space, Object: source})
}

// String names the object for messages.
func (i identity) String() string {
	name := i.name
	if i.namespace != "" {
		name = i.namespace + "/" + i.name
	}
	return i.kind.String() + " " + name
}
