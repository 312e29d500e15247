// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package invalid

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/authorization"
	accessvalidation "k8s.io/kubernetes/pkg/apis/authorization/validation"
	api "k8s.io/kubernetes/pkg/apis/core"
)

// fewElements give no more errors than can be listed, about.
const fewElements = MaxErrors / 5

// Check refuses an object with more errors than are listed in what no strategy validates that can be replaced: its metadata, which
// an API server validates for all objects alike, finalizers in the spec of a namespace, and requests about access.
func Check(kind schema.GroupKind, object runtime.Object) error {
	m, err := meta.Accessor(object)
	if err != nil {
		return nil //nolint:nilerr // it has no metadata
	}
	errs := ofMetadata(m)
	switch object := object.(type) {
	case *api.Namespace:
		errs = append(errs, ofFinalizers(object.Spec.Finalizers)...)
	case *authorization.SubjectAccessReview:
		errs = append(errs, accessvalidation.ValidateSubjectAccessReview(object)...)
	case *authorization.LocalSubjectAccessReview:
		errs = append(errs, accessvalidation.ValidateLocalSubjectAccessReview(object)...)
	case *authorization.SelfSubjectAccessReview:
		errs = append(errs, accessvalidation.ValidateSelfSubjectAccessReview(object)...)
	}
	if len(errs) <= MaxErrors {
		return nil
	}
	return apierrors.NewInvalid(kind, m.GetName(), Cut(errs))
}

func ofMetadata(m metav1.Object) field.ErrorList {
	labels, annotations, finalizers, owners, managers := m.GetLabels(), m.GetAnnotations(), m.GetFinalizers(), m.GetOwnerReferences(), m.GetManagedFields()
	if len(labels)+len(annotations)+len(finalizers)+len(owners)+len(managers) <= fewElements {
		return nil
	}
	path := field.NewPath("metadata")
	errs := metavalidation.ValidateLabels(labels, path.Child("labels"))
	errs = append(errs, validation.ValidateAnnotations(annotations, path.Child("annotations"))...)
	errs = append(errs, validation.ValidateFinalizers(finalizers, path.Child("finalizers"))...)
	errs = append(errs, validation.ValidateOwnerReferences(owners, path.Child("ownerReferences"))...)
	return append(errs, metavalidation.ValidateManagedFields(managers, path.Child("managedFields"))...)
}

// ofFinalizers is of those in the spec of a namespace, whose registry upstream keeps to itself.
func ofFinalizers(finalizers []api.FinalizerName) field.ErrorList {
	path := field.NewPath("spec", "finalizers")
	var errs field.ErrorList
	for _, f := range finalizers {
		errs = append(errs, validation.ValidateFinalizerName(string(f), path)...)
		if f != api.FinalizerKubernetes && !strings.Contains(string(f), "/") {
			errs = append(errs, field.Invalid(path, f, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}
