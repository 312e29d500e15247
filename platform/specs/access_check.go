// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/gateway/audit"
)

// checkEnforced rejects what a space could not enforce. The schema of Space rejects most of it, but not invalid names and labels.
func checkEnforced(spec *v1alpha1.SpaceSpec, at *field.Path) (errs field.ErrorList) {
	if spec.TenantName != "" {
		for _, problem := range validation.IsDNS1123Label(spec.TenantName) {
			errs = append(errs, field.Invalid(at.Child("tenantName"), spec.TenantName, problem))
		}
	}
	errs = append(errs, checkAccess(&spec.Access, at.Child("access"))...)
	errs = append(errs, audit.Check(&spec.Audit, at.Child("audit"))...)
	return append(errs, checkMetadata(spec.Namespaces.Labels, spec.Namespaces.Annotations, at.Child("namespaces"))...)
}

func checkAccess(access *v1alpha1.Access, at *field.Path) (errs field.ErrorList) {
	seen := map[v1alpha1.Subject]bool{}
	for i, owner := range access.Owners {
		at := at.Child("owners").Index(i)
		subject := v1alpha1.Subject{Kind: owner.Kind, Name: owner.Name}
		errs = append(errs, checkSubject(subject, at)...)
		if seen[subject] {
			errs = append(errs, field.Duplicate(at, owner.Name))
		}
		seen[subject] = true
		for j, role := range owner.ClusterRoles {
			errs = append(errs, checkRole(role, at.Child("clusterRoles").Index(j))...)
		}
		errs = append(errs, checkRoleMetadata(owner.Labels, owner.Annotations, at)...)
	}
	for i, administrator := range access.Administrators {
		errs = append(errs, checkSubject(administrator, at.Child("administrators").Index(i))...)
	}
	for i, binding := range access.AdditionalRoleBindings {
		at := at.Child("additionalRoleBindings").Index(i)
		errs = append(errs, checkRole(binding.ClusterRoleName, at.Child("clusterRoleName"))...)
		for j, subject := range binding.Subjects {
			errs = append(errs, checkRoleSubject(subject, at.Child("subjects").Index(j))...)
		}
		errs = append(errs, checkRoleMetadata(binding.Labels, binding.Annotations, at)...)
	}
	return errs
}

func checkSubject(subject v1alpha1.Subject, at *field.Path) (errs field.ErrorList) {
	kinds := []v1alpha1.SubjectKind{v1alpha1.UserKind, v1alpha1.GroupKind, v1alpha1.ServiceAccountKind, v1alpha1.HostServiceAccountKind}
	if !slices.Contains(kinds, subject.Kind) {
		errs = append(errs, field.NotSupported(at.Child("kind"), subject.Kind, kinds))
	}
	if subject.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "name the subject as it authenticates"))
	}
	if parts := strings.Split(subject.Name, ":"); (subject.Kind == v1alpha1.ServiceAccountKind || subject.Kind == v1alpha1.HostServiceAccountKind) &&
		(len(parts) != 4 || parts[0] != "system" || parts[1] != "serviceaccount" || parts[2] == "" || parts[3] == "") {
		errs = append(errs, field.Invalid(at.Child("name"), subject.Name, "the name of a ServiceAccount has the form system:serviceaccount:NAMESPACE:NAME"))
	}
	return errs
}

func checkRole(name string, at *field.Path) (errs field.ErrorList) {
	for _, problem := range content.IsPathSegmentName(name) {
		errs = append(errs, field.Invalid(at, name, "must be the name of a ClusterRole: "+problem))
	}
	if name == "" {
		errs = append(errs, field.Required(at, "name a ClusterRole of the space"))
	}
	return errs
}

// checkRoleSubject rejects what the API server of a space would reject in a RoleBinding.
func checkRoleSubject(subject rbacv1.Subject, at *field.Path) (errs field.ErrorList) {
	if subject.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "name the subject"))
	}
	group := rbacv1.GroupName
	switch subject.Kind {
	case rbacv1.UserKind, rbacv1.GroupKind:
	case rbacv1.ServiceAccountKind:
		group = ""
		if subject.Namespace == "" {
			errs = append(errs, field.Required(at.Child("namespace"), "name the namespace of the ServiceAccount"))
		}
		for _, problem := range validation.IsDNS1123Subdomain(subject.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), subject.Name, problem))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("kind"), subject.Kind, []string{rbacv1.UserKind, rbacv1.GroupKind, rbacv1.ServiceAccountKind}))
	}
	if subject.APIGroup != "" && subject.APIGroup != group {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), subject.APIGroup, []string{group}))
	}
	return errs
}

func checkRoleMetadata(labels, annotations map[string]string, at *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabels(labels, at.Child("labels"))
	return append(errs, checkAnnotationKeys(annotations, at.Child("annotations"))...)
}
