// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadidentity

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxRules is how many rules a space has at most, with those of the configuration.
const MaxRules = 8

// The schema of Space and Tenant has the same bounds.
const (
	maxValues = 32
	maxLabels = 4
	maxEntry  = 256
	maxKey    = 317
)

// closed are the domains of keys on which other software of a host acts, by themselves and with subdomains.
func closed() []string {
	return []string{
		"berth.dev", "kubernetes.io", "k8s.io", "x-k8s.io", "openshift.io", "helm.sh", "argoproj.io", "fluxcd.io", "cattle.io",
	}
}

// whole are the keys whose values say at their end, or nowhere, whose they are.
func whole() []string {
	return []string{"iam.gke.io/gcp-service-account", "azure.workload.identity/client-id", "azure.workload.identity/tenant-id"}
}

const roleARN = "eks.amazonaws.com/role-arn"

var (
	role  = regexp.MustCompile(`^arn:[a-z-]+:iam::[0-9]+:role/`)
	entry = regexp.MustCompile(strings.TrimSuffix(ValuePattern, "$") + `\*?$`)
)

// Validate returns an error for each part of the rules that is invalid. The schema of Space and Tenant rejects it, too, but not in a
// configuration file.
func (r Rules) Validate(path *field.Path) (errs field.ErrorList) {
	if len(r) > MaxRules {
		errs = append(errs, field.TooMany(path, len(r), MaxRules))
	}
	seen := map[string]bool{}
	for i := range r {
		if seen[r[i].Annotation] {
			errs = append(errs, field.Duplicate(path.Index(i).Child("annotation"), r[i].Annotation))
		}
		seen[r[i].Annotation] = true
		errs = append(errs, r[i].validate(path.Index(i))...)
	}
	return errs
}

func (r *Rule) validate(path *field.Path) (errs field.ErrorList) {
	at := path.Child("annotation")
	domain, _, _ := strings.Cut(r.Annotation, "/")
	switch problems := validation.IsQualifiedName(r.Annotation); {
	case !strings.Contains(r.Annotation, "/") || len(r.Annotation) > maxKey || len(problems) > 0:
		errs = append(errs, field.Invalid(at, r.Annotation, "must be a key with a domain, such as "+roleARN))
	case slices.ContainsFunc(closed(), func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }):
		errs = append(errs, field.Invalid(at, r.Annotation, "controllers of the host act on annotations of "+strings.Join(closed(), ", ")+"; name an annotation by which a cloud gives an identity"))
	}
	errs = append(errs, r.validateValues(path.Child("values"))...)
	return append(errs, r.validateLabels(path.Child("podLabels"), domain)...)
}

func (r *Rule) validateValues(path *field.Path) (errs field.ErrorList) {
	if len(r.Values) == 0 {
		errs = append(errs, field.Required(path, "list the values that the annotation may have"))
	}
	if len(r.Values) > maxValues {
		errs = append(errs, field.TooMany(path, len(r.Values), maxValues))
	}
	for i, value := range r.Values {
		at := path.Index(i)
		switch {
		case len(value) < 2 || len(value) > maxEntry || !entry.MatchString(value):
			errs = append(errs, field.Invalid(at, value, "must have 2 to 256 letters, digits, and :/._@+=~-, and may end in one *"))
		case r.Annotation == roleARN && !role.MatchString(value):
			errs = append(errs, field.Invalid(at, value, "must begin with the account and role/, such as arn:aws:iam::111122223333:role/solar-*"))
		case strings.HasSuffix(value, "*") && slices.Contains(whole(), r.Annotation):
			errs = append(errs, field.Invalid(at, value, "can't end in *, because the beginning of a value of this annotation doesn't say whose it is; list whole values"))
		}
	}
	return errs
}

func (r *Rule) validateLabels(path *field.Path, domain string) (errs field.ErrorList) {
	if len(r.PodLabels) > maxLabels {
		errs = append(errs, field.TooMany(path, len(r.PodLabels), maxLabels))
	}
	for _, key := range slices.Sorted(maps.Keys(r.PodLabels)) {
		for _, problem := range validation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(path.Key(key), key, problem))
		}
		if !strings.HasPrefix(key, domain+"/") {
			errs = append(errs, field.Invalid(path.Key(key), key, "must have the prefix of the annotation, such as azure.workload.identity/"))
		}
		if value := r.PodLabels[key]; value == "" {
			errs = append(errs, field.Required(path.Key(key), "a label without a value steers nothing; set the value that pods have"))
		}
		for _, problem := range validation.IsValidLabelValue(r.PodLabels[key]) {
			errs = append(errs, field.Invalid(path.Key(key), r.PodLabels[key], problem))
		}
	}
	return errs
}
