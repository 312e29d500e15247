// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantaccess

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/space/v1alpha1"
	hostv1alpha1 "github.com/berth-dev/berth/api/v1alpha1"
)

const (
	// maxBytes limits an object, because all of a space are read while it sleeps.
	maxBytes = access.MaxTenantAccessBytes
	// maxRules, maxSubjects, and the others are in the schema, too, which is for people.
	maxSubjects, maxRules, maxWords, maxNames = 32, 32, 32, 64
	maxWord                                   = 253
	// maxCombinations limits what all rules of an object say: who writes it must have each of these rights.
	maxCombinations = 1024
	// maxYear is the last one that can be read again: a time near the end of it may be of the next one in UTC, which is stored.
	maxYear = 9999
)

// Validate returns what is wrong with an object.
func Validate(a *v1alpha1.TenantAccess) field.ErrorList {
	all := validation.ValidateObjectMeta(&a.ObjectMeta, false, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	path := field.NewPath("spec")
	all = append(all, count(path.Child("subjects"), len(a.Spec.Subjects), 1, maxSubjects, "name at least one tenant")...)
	for i := range a.Spec.Subjects[:min(len(a.Spec.Subjects), maxSubjects)] {
		all = append(all, subject(&a.Spec.Subjects[i], path.Child("subjects").Index(i))...)
	}
	all = append(all, count(path.Child("rules"), len(a.Spec.Rules), 1, maxRules, "name at least one right")...)
	for i := range a.Spec.Rules[:min(len(a.Spec.Rules), maxRules)] {
		all = append(all, rule(&a.Spec.Rules[i], path.Child("rules").Index(i))...)
	}
	if at := a.Spec.ExpirationTime; at != nil && at.UTC().Year() > maxYear {
		all = append(all, field.Invalid(path.Child("expirationTime"), at.UTC().String(), "it is after the year 9999; leave it out for no end"))
	}
	if n := combinations(a.Spec.Rules); len(all) == 0 && n > maxCombinations {
		all = append(all, field.Invalid(path.Child("rules"), n, fmt.Sprintf(
			"the rules have so many combinations of verbs, API groups, resources, names, and namespaces, and may have %d; use several objects, or * for all", maxCombinations)))
	}
	if data, err := json.Marshal(a); err != nil || len(data) > maxBytes {
		all = append(all, field.Invalid(field.NewPath(""), len(data), fmt.Sprintf("the object has more than %d bytes; remove annotations, or use several objects", maxBytes)))
	}
	return all
}

func subject(s *v1alpha1.TenantSubject, path *field.Path) (all field.ErrorList) {
	for _, problem := range utilvalidation.IsDNS1123Label(s.Tenant) {
		all = append(all, field.Invalid(path.Child("tenant"), s.Tenant, problem+"; use the name of a tenant"))
	}
	if s.Tenant == hostv1alpha1.SystemTenant {
		all = append(all, field.Invalid(path.Child("tenant"), s.Tenant, "users of this tenant reach all spaces by their own names; give them rights with a RoleBinding or ClusterRoleBinding"))
	}
	all = append(all, words(path.Child("users"), s.Users, 0, maxNames)...)
	return append(all, words(path.Child("groups"), s.Groups, 0, maxNames)...)
}

func rule(r *v1alpha1.TenantAccessRule, path *field.Path) field.ErrorList {
	all := words(path.Child("verbs"), r.Verbs, 1, maxWords)
	for i, verb := range r.Verbs {
		if access.IsImpersonation(verb) {
			all = append(all, field.Invalid(path.Child("verbs").Index(i), verb, "users of other tenants can't act as users of this one; give them the rights that they need"))
		}
	}
	all = append(all, count(path.Child("apiGroups"), len(r.APIGroups), 1, maxWords, `use "" for the core group`)...)
	for i, group := range r.APIGroups {
		if len(group) > maxWord {
			all = append(all, field.TooLong(path.Child("apiGroups").Index(i), group, maxWord))
		}
	}
	all = append(all, words(path.Child("resources"), r.Resources, 1, maxWords)...)
	for i, resource := range r.Resources {
		if strings.HasSuffix(resource, "/*") {
			all = append(all, field.Invalid(path.Child("resources").Index(i), resource, "name each subresource, such as pods/log, or use * for all resources"))
		}
	}
	all = append(all, words(path.Child("resourceNames"), r.ResourceNames, 0, maxNames)...)
	all = append(all, count(path.Child("namespaces"), len(r.Namespaces), 0, maxNames, "")...)
	for i, namespace := range r.Namespaces {
		for _, problem := range validation.ValidateNamespaceName(namespace, false) {
			all = append(all, field.Invalid(path.Child("namespaces").Index(i), namespace, problem+"; leave the list out for all namespaces"))
		}
	}
	return all
}

// combinations returns how many rights valid rules have.
func combinations(rules []v1alpha1.TenantAccessRule) (n int) {
	for _, r := range rules {
		n += len(r.Verbs) * len(r.APIGroups) * len(r.Resources) * max(len(r.ResourceNames), 1) * max(len(r.Namespaces), 1)
	}
	return n
}

// words checks a list of words that must not be empty.
func words(path *field.Path, list []string, least, most int) field.ErrorList {
	all := count(path, len(list), least, most, `use "*" for all`)
	for i, word := range list[:min(len(list), most)] {
		switch {
		case word == "":
			all = append(all, field.Required(path.Index(i), "it is empty; remove the item"))
		case len(word) > maxWord:
			all = append(all, field.TooLong(path.Index(i), word, maxWord))
		}
	}
	return all
}

func count(path *field.Path, has, least, most int, remedy string) field.ErrorList {
	switch {
	case has < least:
		return field.ErrorList{field.Required(path, remedy)}
	case has > most:
		return field.ErrorList{field.TooMany(path, has, most)}
	}
	return nil
}
