// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crdpolicy has what the API server of a space needs to serve the CRDPolicy of the space as it serves its own objects.
//
// The shared handler tree calls it. What the policy means is in package definitions.
package crdpolicy

import (
	"context"
	"encoding/json"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage/names"

	"github.com/berth-dev/berth/api/space/v1alpha1"
)

// Strategy is how the object is created and updated.
type Strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
}

// NewStrategy returns a strategy for the types of a scheme.
func NewStrategy(scheme *runtime.Scheme) Strategy { return Strategy{scheme, names.SimpleNameGenerator} }

// Policy returns the policy of an object as it is stored; "" if it can't be read.
func Policy(stored []byte) v1alpha1.CRDPolicyType {
	object := &v1alpha1.CRDPolicy{}
	if json.Unmarshal(stored, object) != nil {
		return ""
	}
	return object.Spec.Policy
}

// NamespaceScoped returns false.
func (Strategy) NamespaceScoped() bool { return false }

// PrepareForCreate counts the versions of the spec.
func (Strategy) PrepareForCreate(_ context.Context, object runtime.Object) {
	object.(*v1alpha1.CRDPolicy).Generation = 1
}

// PrepareForUpdate counts the versions of the spec.
func (Strategy) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	is, was := object.(*v1alpha1.CRDPolicy), old.(*v1alpha1.CRDPolicy)
	is.Generation = was.Generation
	if !apiequality.Semantic.DeepEqual(is.Spec, was.Spec) {
		is.Generation++
	}
}

// Validate returns what is wrong with a new object.
func (Strategy) Validate(_ context.Context, object runtime.Object) field.ErrorList {
	return validate(object.(*v1alpha1.CRDPolicy))
}

// ValidateUpdate returns what is wrong with a changed object.
func (Strategy) ValidateUpdate(_ context.Context, object, _ runtime.Object) field.ErrorList {
	return validate(object.(*v1alpha1.CRDPolicy))
}

func validate(p *v1alpha1.CRDPolicy) field.ErrorList {
	all := validation.ValidateObjectMeta(&p.ObjectMeta, false, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if p.Name != v1alpha1.CRDPolicyName {
		all = append(all, field.Invalid(field.NewPath("metadata", "name"), p.Name, "a space has one policy; use the name "+v1alpha1.CRDPolicyName))
	}
	switch p.Spec.Policy {
	case v1alpha1.LocalCRDFirst, v1alpha1.SystemCRDFirst, v1alpha1.NeverUseSystemCRDUnlessForced:
	default:
		all = append(all, field.NotSupported(field.NewPath("spec", "policy"), p.Spec.Policy,
			[]v1alpha1.CRDPolicyType{v1alpha1.LocalCRDFirst, v1alpha1.SystemCRDFirst, v1alpha1.NeverUseSystemCRDUnlessForced}))
	}
	return all
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
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "The name of the object."},
		{Name: "Policy", Type: "string", Description: "Which definitions are used."},
		{Name: "Age", Type: "string", Description: "The age of the object."},
	}}
	switch o := object.(type) {
	case *v1alpha1.CRDPolicy:
		table.ResourceVersion = o.ResourceVersion
		table.Rows = append(table.Rows, row(o))
	case *v1alpha1.CRDPolicyList:
		table.ResourceVersion, table.Continue, table.RemainingItemCount = o.ResourceVersion, o.Continue, o.RemainingItemCount
		for i := range o.Items {
			table.Rows = append(table.Rows, row(&o.Items[i]))
		}
	}
	return table, nil
}

func row(p *v1alpha1.CRDPolicy) metav1.TableRow {
	age := "<unknown>"
	if !p.CreationTimestamp.IsZero() {
		age = duration.HumanDuration(time.Since(p.CreationTimestamp.Time))
	}
	return metav1.TableRow{Cells: []any{p.Name, string(p.Spec.Policy), age}, Object: runtime.RawExtension{Object: p}}
}
