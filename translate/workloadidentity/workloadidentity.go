// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workloadidentity has the pure functions that decide which annotations of a ServiceAccount go to the host, where a cloud gives
// pods an identity by them. Translation and the host's admission policies use the same rules.
package workloadidentity

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Rule allows an annotation of ServiceAccounts.
type Rule struct {
	// Annotation is its key.
	Annotation string
	// Values are those that it may have. One that ends in * allows all that begin with what is before it.
	Values []string
	// PodLabels are labels that pods have on the host, too, if they have them in the space, and their ServiceAccount has the annotation
	// with an allowed value.
	PodLabels map[string]string
}

// Rules are those of a space, at most one for an annotation.
type Rules []Rule

const (
	// ValuePattern is what a value of an annotation must match, as an expression in RE2. It has neither a * nor a comma, which have a
	// meaning in [Rules.Strings], nor letters that look like others.
	ValuePattern = `^[A-Za-z0-9:/._@+=~-]+$`
	// MaxValue is the maximum length of a value, in bytes.
	MaxValue = 1000
	// Upward is what a value that an entry with a * allows must not contain: a program that reads the value as a path would leave the
	// part before the *.
	Upward = ".."
	// LabelPrefix begins the entries of [Rules.Strings] about labels. No key of an annotation contains a colon.
	LabelPrefix = "label:"
)

var plainValue = regexp.MustCompile(ValuePattern)

// allows reports whether the annotation may have a value.
func (r Rule) allows(value string) bool {
	return len(value) <= MaxValue && plainValue.MatchString(value) && slices.ContainsFunc(r.Values, func(allowed string) bool {
		prefix, open := strings.CutSuffix(allowed, "*")
		return value == allowed || open && strings.HasPrefix(value, prefix) && !strings.Contains(value, Upward)
	})
}

// Check returns an error for each annotation of a ServiceAccount that a rule is about, and whose value it doesn't allow. The errors
// don't reveal what is allowed to other tenants than the one whose rules they are.
func (r Rules) Check(annotations map[string]string) (errs field.ErrorList) {
	for _, rule := range r {
		if value, ok := annotations[rule.Annotation]; ok && !rule.allows(value) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(rule.Annotation), brief(value),
				fmt.Sprintf("the admin of the platform allows %s; use one of these, remove the annotation, or ask the admin to add the value to workloadIdentity of the tenant", rule.summary())))
		}
	}
	return errs
}

// maxBrief is how much of a tenant's value is in an error, in bytes. The remedy has to fit into the message of an event, too.
const maxBrief = 128

func brief(value string) string {
	if len(value) <= maxBrief {
		return value
	}
	return strings.ToValidUTF8(value[:maxBrief], "") + "..."
}

// summary returns the first values of a rule, with the number of the others.
func (r Rule) summary() string {
	const most = 400
	length := 0
	for i, value := range r.Values {
		if length += len(value) + 2; length > most && i > 0 {
			return fmt.Sprintf("%s, and %d more", strings.Join(r.Values[:i], ", "), len(r.Values)-i)
		}
	}
	return strings.Join(r.Values, ", ")
}

// Allowed returns the annotations of a ServiceAccount that go to the host; none if a value of one is not allowed, because some of them
// could mean another identity than all of them.
func (r Rules) Allowed(annotations map[string]string) map[string]string {
	if len(r) == 0 || len(r.Check(annotations)) > 0 {
		return nil
	}
	allowed := map[string]string{}
	for _, rule := range r {
		if value, ok := annotations[rule.Annotation]; ok {
			allowed[rule.Annotation] = value
		}
	}
	return allowed
}

// Same reports whether two ServiceAccounts have the same annotations, of those that the rules are about.
func (r Rules) Same(one, other map[string]string) bool {
	return !slices.ContainsFunc(r, func(rule Rule) bool {
		value, has := one[rule.Annotation]
		otherValue, otherHas := other[rule.Annotation]
		return has != otherHas || value != otherValue
	})
}

// PodLabels returns the labels of a pod that go to the host as they are, by the annotations of its ServiceAccount.
func (r Rules) PodLabels(account, pod map[string]string) (labels map[string]string) {
	allowed := r.Allowed(account)
	for _, rule := range r {
		if _, has := allowed[rule.Annotation]; !has {
			continue
		}
		for key, value := range rule.PodLabels {
			if have, ok := pod[key]; ok && have == value {
				if labels == nil {
					labels = map[string]string{}
				}
				labels[key] = value
			}
		}
	}
	return labels
}

// IsPodLabel reports whether a rule is about a label of pods.
func (r Rules) IsPodLabel(key string) bool {
	return slices.ContainsFunc(r, func(rule Rule) bool { _, ok := rule.PodLabels[key]; return ok })
}

// Strings returns the form that the host's admission policies read: KEY=VALUE for each value of an annotation, and label:KEY=VALUE for
// each label of pods. No entry contains a comma if [Rules.Validate] accepts the rules.
func (r Rules) Strings() (list []string) {
	for _, rule := range r {
		for _, value := range rule.Values {
			list = append(list, rule.Annotation+"="+value)
		}
		for _, key := range slices.Sorted(maps.Keys(rule.PodLabels)) {
			list = append(list, LabelPrefix+key+"="+rule.PodLabels[key])
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
