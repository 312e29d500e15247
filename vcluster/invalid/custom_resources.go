// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package invalid

import (
	"context"
	"maps"
	"net/http"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// maxParts is how many parts of schemas are kept for a space, of about 300 bytes each, besides those of one schema. Others are made
// again: a tenant may change a definition of 1 MiB as often as it likes.
const maxParts = 50_000

// CustomResources bounds the validation errors of a space's custom resources, by their definitions. It is safe for concurrent use
// once Lister is set, which must be before any request.
type CustomResources struct {
	Lister listers.CustomResourceDefinitionLister

	mu      sync.Mutex
	schemas map[schemaKey]*schemaTree
	parts   int // of all schemas
}

type schemaKey struct {
	uid      types.UID
	revision string
	version  string
}

type definitionKey struct{}

// begun is the definition of what a request writes, as it was when the request began.
type begun struct {
	definitions *CustomResources
	definition  *apiextensionsv1.CustomResourceDefinition
}

// Begin returns the context of a request, with the definition of what it writes. Upstream validates an object by the definition
// that there was when the request began, and its client may send the body when there is another one.
func (d *CustomResources) Begin(r *http.Request) context.Context {
	ctx := r.Context()
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
	default:
		return ctx
	}
	paths := apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("apis", "api"), GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := paths.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest || info.APIGroup == "" {
		return ctx
	}
	if definition := d.get(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}); definition != nil {
		return context.WithValue(ctx, definitionKey{}, begun{d, definition})
	}
	return ctx
}

func (d *CustomResources) get(resource schema.GroupResource) *apiextensionsv1.CustomResourceDefinition {
	definition, err := d.Lister.Get(resource.String())
	if err != nil {
		return nil
	}
	return definition
}

// Check refuses a custom resource whose validation errors are more than are listed, or take too much. Upstream keeps the
// strategies of custom resources to itself, and compares each error with all others.
func (d *CustomResources) Check(ctx context.Context, a admission.Attributes) error {
	u, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok || a.GetSubresource() != "" && a.GetSubresource() != "status" {
		return nil
	}
	definitions := map[*apiextensionsv1.CustomResourceDefinition]bool{d.get(a.GetResource().GroupResource()): true}
	if of, ok := ctx.Value(definitionKey{}).(begun); ok {
		definitions[of.definition] = true
	}
	for definition := range definitions {
		err := d.checkBy(ctx, definition, a.GetKind().Version, a.GetName(), func(o *object, v *apiextensionsv1.CustomResourceDefinitionVersion) {
			o.content, o.whole, o.stored = written(a, u.Object, v)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// CheckScaled likewise refuses to scale a custom resource, as it is stored: upstream validates all of it, and admission sees a Scale.
func CheckScaled(ctx context.Context, stored runtime.Object) error {
	u, ok := stored.(*unstructured.Unstructured)
	info, known := apirequest.RequestInfoFrom(ctx)
	if !ok || !known || info.Subresource != "scale" {
		return nil
	}
	of, ok := ctx.Value(definitionKey{}).(begun)
	if !ok {
		return nil
	}
	return of.definitions.checkBy(ctx, of.definition, info.APIVersion, info.Name, func(o *object, _ *apiextensionsv1.CustomResourceDefinitionVersion) {
		o.content, o.whole = u.Object, u.Object
	})
}

// checkBy checks an object, of which set sets the contents, by a definition's version.
func (d *CustomResources) checkBy(
	ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition, version, name string, set func(*object, *apiextensionsv1.CustomResourceDefinitionVersion),
) error {
	if definition == nil {
		return nil
	}
	for i := range definition.Spec.Versions {
		v := &definition.Spec.Versions[i]
		if v.Name != version || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		o := &object{props: v.Schema.OpenAPIV3Schema, schema: d.schemaOf(definition, v)}
		set(o, v)
		errs, err := o.check(ctx)
		if err != nil {
			return apierrors.NewForbidden(schema.GroupResource{Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural}, name, err)
		}
		if len(errs) > 0 {
			return apierrors.NewInvalid(schema.GroupKind{Group: definition.Spec.Group, Kind: definition.Spec.Names.Kind}, name, errs)
		}
	}
	return nil
}

// written returns what upstream takes of a request's object, its status or all but that; what it validates with rules; and what the
// first replaces.
func written(
	a admission.Attributes, content map[string]any, v *apiextensionsv1.CustomResourceDefinitionVersion,
) (taken, whole, stored map[string]any) {
	const status = "status"
	if old, ok := a.GetOldObject().(*unstructured.Unstructured); ok && old != nil {
		stored = old.Object
	}
	if v.Subresources == nil || v.Subresources.Status == nil {
		return content, content, stored
	}
	if a.GetSubresource() == status {
		taken = map[string]any{status: content[status]}
		whole = maps.Clone(stored)
		if whole == nil {
			whole = map[string]any{}
		}
		whole[status] = content[status]
		return taken, whole, map[string]any{status: stored[status]}
	}
	taken = maps.Clone(content)
	delete(taken, status)
	whole = maps.Clone(content)
	whole[status] = stored[status]
	if stored != nil {
		stored = maps.Clone(stored)
		delete(stored, status)
	}
	return taken, whole, stored
}

func (d *CustomResources) schemaOf(definition *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) *schemaTree {
	key := schemaKey{definition.UID, definition.ResourceVersion, v.Name}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.schemas[key]; s != nil {
		return s
	}
	s := newSchema(v.Schema.OpenAPIV3Schema)
	if d.schemas == nil || d.parts+s.parts > maxParts {
		d.schemas, d.parts = map[schemaKey]*schemaTree{}, 0
	}
	d.schemas[key] = s
	d.parts += s.parts
	return s
}
