// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	admissionlisters "k8s.io/client-go/listers/admissionregistration/v1"
)

const (
	// maxTypeCheck is how long the types of a policy's expressions may take to be checked, about. Upstream compiles each expression
	// for each type of objects that the policy is for, and all variables before it, in an environment of its own: hours, for 500
	// expressions with 500 variables and hundreds of types, whenever the policy is written.
	maxTypeCheck = time.Second
	// What of it takes how long, as measured.
	perExpression  = 2 * time.Millisecond
	perVariable    = 50 * time.Microsecond
	perByte        = 1500 * time.Nanosecond
	perCombination = time.Microsecond
	// typesOfRule is how many types upstream looks for in one rule.
	typesOfRule = 10
)

// CheckedPolicies is a view for the controller that checks policies. A policy that takes too long has no validations in it, so its status
// has no warnings about them. The others take their time.
type CheckedPolicies struct {
	admissioninformers.ValidatingAdmissionPolicyInformer
	Pace *Pace
}

// Lister lists policies that are checked at a pace.
func (i CheckedPolicies) Lister() admissionlisters.ValidatingAdmissionPolicyLister {
	return checkedPolicyLister{i.ValidatingAdmissionPolicyInformer.Lister(), i.Pace}
}

type checkedPolicyLister struct {
	admissionlisters.ValidatingAdmissionPolicyLister
	pace *Pace
}

func (l checkedPolicyLister) Get(name string) (*admissionv1.ValidatingAdmissionPolicy, error) {
	policy, err := l.ValidatingAdmissionPolicyLister.Get(name)
	if err != nil || policy.Generation <= policy.Status.ObservedGeneration { // it has been checked
		return policy, err
	}
	d := typeCheck(&policy.Spec)
	if d > maxTypeCheck {
		policy = policy.DeepCopy()
		policy.Spec.Validations = nil
		policy.Spec.MatchConstraints = nil
		return policy, nil
	}
	return policy, l.pace.wait(d)
}

// typeCheck is how long a policy's types take to be checked, about, or more than maxTypeCheck.
func typeCheck(p *admissionv1.ValidatingAdmissionPolicySpec) time.Duration {
	if p.MatchConstraints == nil {
		return 0
	}
	types, looked := 0, time.Duration(0)
	for i := range p.MatchConstraints.ResourceRules {
		r := &p.MatchConstraints.ResourceRules[i].Rule
		n := len(r.APIGroups) * len(r.APIVersions) * len(r.Resources)
		types += min(n, typesOfRule)
		looked += time.Duration(n) * perCombination
		if looked > maxTypeCheck {
			return looked
		}
	}
	variables := time.Duration(0)
	for _, v := range p.Variables {
		variables += perVariable + time.Duration(len(v.Expression))*perByte
	}
	each := time.Duration(0)
	for i := range p.Validations {
		v := &p.Validations[i]
		each += perExpression + variables + time.Duration(len(v.Expression))*perByte
		if v.MessageExpression != "" {
			each += perExpression + variables + time.Duration(len(v.MessageExpression))*perByte
		}
	}
	return looked + time.Duration(types)*each
}
