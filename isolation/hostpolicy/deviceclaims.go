// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/translate"
)

// deviceRequest are the fields of a request for devices, or of one of its alternatives. A host sets adminAccess
// and tolerations in no request that lacks them.
const deviceRequest = "deviceClassName:class selectors[]{cel{expression:selector}} allocationMode count"

// deviceClaims hold resource claims to what translate.CheckDeviceClaim allows. A claim that requests nothing would count
// as no device in the quota, and an account could create any number.
func deviceClaims() []admissionv1.Validation {
	// An empty list of requests is null.
	const requests = "(object.spec.?devices.?requests.orValue(null) == null ? [] : object.spec.devices.requests)"
	parts := "size(object.spec.?devices.?constraints.orValue([])) + " + requests + ".map(r, 1 + size(r.?exactly.?selectors.orValue([])) + " +
		"r.?firstAvailable.orValue([]).map(s, 1 + size(s.?selectors.orValue([]))).sum()).sum()"
	return []admissionv1.Validation{
		Refuse(fmt.Sprintf("a space's resource claims need a request, and may have at most %d requests, alternatives, selectors, and constraints", bounds.ClaimParts.Bound().Default),
			about("resourceclaims", "oldObject != null || size("+requests+") > 0 && "+atMost(parts, bounds.ClaimParts.Bound().Default))),
	}
}

// classRule is the rule of a DeviceClass: the quota of the space counts it.
func classRule(value string) string {
	return "oldObject != null || " + says("resources", "('"+translate.CountedClass+"' + "+value+")")
}

// selectorRule is the rule of expressions that select devices.
func selectorRule(value string) string {
	return fmt.Sprintf(`size(%[1]s) <= %[2]d && %[1]s.matches(r"%[3]s")`, value, translate.MaxSelectorBytes, translate.SelectorForm)
}
