// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantaccess

import (
	"context"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage/names"

	"github.com/berth-dev/berth/api/space/v1alpha1"
)

// Strategy is how objects are created and updated.
type Strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
}

// NewStrategy returns a strategy for the types of a scheme.
func NewStrategy(scheme *runtime.Scheme) Strategy { return Strategy{scheme, names.SimpleNameGenerator} }

// NamespaceScoped returns false.
func (Strategy) NamespaceScoped() bool { return false }

// PrepareForCreate counts the versions of the spec.
func (Strategy) PrepareForCreate(_ context.Context, object runtime.Object) {
	object.(*v1alpha1.TenantAccess).Generation = 1
}

// PrepareForUpdate counts the versions of the spec.
func (Strategy) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	is, was := object.(*v1alpha1.TenantAccess), old.(*v1alpha1.TenantAccess)
	is.Generation = was.Generation
	if !apiequality.Semantic.DeepEqual(is.Spec, was.Spec) {
		is.Generation++
	}
}

// Validate returns what is wrong with a new object.
func (Strategy) Validate(_ context.Context, object runtime.Object) field.ErrorList {
	a := object.(*v1alpha1.TenantAccess)
	all := Validate(a)
	if at := a.Spec.ExpirationTime; at != nil && !at.After(time.Now()) {
		all = append(all, field.Invalid(field.NewPath("spec", "expirationTime"), at.UTC().Format(time.RFC3339), "it has passed; use a later time, or leave it out"))
	}
	return all
}

// ValidateUpdate returns what is wrong with a changed object. A time that has passed ends the rights.
func (Strategy) ValidateUpdate(_ context.Context, object, _ runtime.Object) field.ErrorList {
	return Validate(object.(*v1alpha1.TenantAccess))
}

// WarningsOnCreate returns nothing.
func (Strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

// WarningsOnUpdate returns nothing.
func (Strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// Canonicalize does nothing.
func (Strategy) Canonicalize(runtime.Object) {}

// AllowCreateOnUpdate returns false: only server-side apply creates by updates.
func (Strategy) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate returns true.
func (Strategy) AllowUnconditionalUpdate(context.Context) bool { return true }

// ConvertToTable implements [k8s.io/apiserver/pkg/registry/rest.TableConvertor].
func (Strategy) ConvertToTable(_ context.Context, object, _ runtime.Object) (*metav1.Table, error) {
	return toTable(object), nil
}
