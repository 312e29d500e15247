// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
)

const (
	// MaxSelectorBytes is the maximum length of an expression that selects devices.
	MaxSelectorBytes = 256
	// SelectorCalls are the functions and methods, separated by |, that such an expression may call.
	SelectorCalls = "quantity|semver|compareTo|isGreaterThan|isLessThan|contains|startsWith|endsWith|has|orValue|hasValue"
	// SelectorForm is a regular expression for such expressions. They are ASCII, and of the words before a parenthesis, which
	// are calls, each is one of [SelectorCalls]. So the macros that repeat something aren't possible: the host's scheduler
	// evaluates the expressions of all tenants, for each device of a class on each node.
	SelectorForm = `^((` + SelectorCalls + `)[(]|[A-Za-z0-9_]+( +[A-Za-z0-9_]+)* *([!-'*-/:-@[-^{-~)]|$)|[ -/:-@[-^{-~])*$`
)

var selectorForm = regexp.MustCompile(SelectorForm)

// CheckDeviceClaim returns an error for each field of a ResourceClaim, or of those of a template, that the host can't allow
// a tenant. path is that of spec. m is the metadata of the claims.
func CheckDeviceClaim(counted Counted, path *field.Path, m *metav1.ObjectMeta, spec *resourcev1.ResourceClaimSpec) (errs field.ErrorList) {
	if many := checkDeviceClaimSize(path, m, spec); len(many) > 0 {
		return many
	}
	path = path.Child("devices")
	if len(spec.Devices.Requests) == 0 {
		errs = append(errs, field.Forbidden(path.Child("requests"), "the claim requests no device; request one of a class that the quota of the space names"))
	}
	for i, request := range spec.Devices.Requests {
		path := path.Child("requests").Index(i)
		if request.Exactly == nil && len(request.FirstAvailable) == 0 {
			errs = append(errs, field.Forbidden(path, "Berth doesn't know this kind of request; use exactly, or firstAvailable"))
		}
		if exactly := request.Exactly; exactly != nil {
			errs = append(errs, checkDeviceRequest(counted, path.Child("exactly"), asSubRequest(exactly))...)
			if ptr.Deref(exactly.AdminAccess, false) {
				errs = append(errs, field.Forbidden(path.Child("exactly", "adminAccess"), "spaces have no access to devices that others use; remove the field"))
			}
		}
		for j := range request.FirstAvailable {
			errs = append(errs, checkDeviceRequest(counted, path.Child("firstAvailable").Index(j), &request.FirstAvailable[j])...)
		}
	}
	if len(spec.Devices.Config) > 0 {
		errs = append(errs, field.Forbidden(path.Child("config"), "a driver on the node would get the parameters, with the rights of the host; "+
			"remove the field, and ask the platform's admin for a DeviceClass with these parameters"))
	}
	return errs
}

func checkDeviceRequest(counted Counted, path *field.Path, r *resourcev1.DeviceSubRequest) (errs field.ErrorList) {
	if !counted.AllowsClass(r.DeviceClassName) {
		errs = append(errs, field.Forbidden(path.Child("deviceClassName"), fmt.Sprintf("devices of class %q requested, but the quota of the space doesn't name %s; "+
			"name another class, or ask the platform's admin to add it to the quota", r.DeviceClassName, ClassQuotaName(r.DeviceClassName))))
	}
	for i, selector := range r.Selectors {
		if selector.CEL == nil || len(selector.CEL.Expression) > MaxSelectorBytes || !selectorForm.MatchString(selector.CEL.Expression) {
			errs = append(errs, field.Forbidden(path.Child("selectors").Index(i).Child("cel", "expression"), fmt.Sprintf("the host's scheduler evaluates only simple expressions for spaces: "+
				"at most %d ASCII characters in one line, and no calls other than %s; use several selectors, or fewer comparisons", MaxSelectorBytes, strings.ReplaceAll(SelectorCalls, "|", ", "))))
		}
	}
	for name, set := range map[string]bool{"tolerations": len(r.Tolerations) > 0, "capacity": r.Capacity != nil, "derivedAttributes": len(r.DerivedAttributes) > 0} {
		if set {
			errs = append(errs, field.Forbidden(path.Child(name), "claims of spaces have a class, selectors, an allocation mode, and a count; remove the field"))
		}
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

// checkDeviceClaimSize bounds what the host's scheduler compares, and what the controller of a space keeps of the claims
// that it creates.
func checkDeviceClaimSize(path *field.Path, m *metav1.ObjectMeta, spec *resourcev1.ResourceClaimSpec) field.ErrorList {
	size := spec.Size()
	for _, list := range []map[string]string{m.Labels, m.Annotations} {
		for key, value := range list {
			size += len(key) + len(value)
		}
	}
	if many := AtMost(path, size, bounds.ClaimBytes); len(many) > 0 {
		return many
	}
	parts := len(spec.Devices.Constraints)
	for _, request := range spec.Devices.Requests {
		if parts++; request.Exactly != nil {
			parts += len(request.Exactly.Selectors)
		}
		for i := range request.FirstAvailable {
			parts += 1 + len(request.FirstAvailable[i].Selectors)
		}
	}
	return AtMost(path.Child("devices"), parts, bounds.ClaimParts)
}

// asSubRequest returns a request in the form of an alternative of one, without AdminAccess.
func asSubRequest(r *resourcev1.ExactDeviceRequest) *resourcev1.DeviceSubRequest {
	return &resourcev1.DeviceSubRequest{
		DeviceClassName: r.DeviceClassName, Selectors: r.Selectors, AllocationMode: r.AllocationMode, Count: r.Count,
		Tolerations: r.Tolerations, Capacity: r.Capacity, DerivedAttributes: r.DerivedAttributes,
	}
}

// DeviceClaim returns v's host object. The spec is built field by field, so that a field that Kubernetes adds stays in the
// space.
func (s Space) DeviceClaim(v *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	host := &resourcev1.ResourceClaim{ObjectMeta: s.ObjectMeta(v, LimitSubdomain)}
	devices := v.Spec.Devices.DeepCopy()
	for _, request := range devices.Requests {
		out := resourcev1.DeviceRequest{Name: request.Name}
		if r := request.Exactly; r != nil {
			out.Exactly = &resourcev1.ExactDeviceRequest{DeviceClassName: r.DeviceClassName, Selectors: r.Selectors, AllocationMode: r.AllocationMode, Count: r.Count}
		}
		for _, r := range request.FirstAvailable {
			out.FirstAvailable = append(out.FirstAvailable, resourcev1.DeviceSubRequest{
				Name: r.Name, DeviceClassName: r.DeviceClassName, Selectors: r.Selectors, AllocationMode: r.AllocationMode, Count: r.Count,
			})
		}
		host.Spec.Devices.Requests = append(host.Spec.Devices.Requests, out)
	}
	for _, c := range devices.Constraints {
		host.Spec.Devices.Constraints = append(host.Spec.Devices.Constraints, resourcev1.DeviceConstraint{
			Requests: c.Requests, MatchAttribute: c.MatchAttribute, DistinctAttribute: c.DistinctAttribute,
		})
	}
	return host
}

// PushDeviceClaim copies the mutable fields of a claim to have. The spec has none.
func PushDeviceClaim(want, have *resourcev1.ResourceClaim) bool { return PushMeta(want, have) }

// DeviceDriver is the driver that spaces see of all devices.
const DeviceDriver = "devices." + Domain

// PullDeviceClaimStatus returns what a tenant sees of the status of a host claim: which requests have a device, and by which
// of its pods they are used. Pools often have the names of nodes, and what drivers write is about the host.
func (s Space) PullDeviceClaimStatus(host *resourcev1.ResourceClaim, usedBy []resourcev1.ResourceClaimConsumerReference) (status resourcev1.ResourceClaimStatus) {
	if host.Status.Allocation == nil {
		return status
	}
	status.ReservedFor = usedBy
	status.Allocation = &resourcev1.AllocationResult{}
	for _, r := range host.Status.Allocation.Devices.Results {
		status.Allocation.Devices.Results = append(status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{
			Request: r.Request, Driver: DeviceDriver, Pool: s.alias("pool", r.Driver, r.Pool), Device: s.alias("device", r.Driver, r.Pool, r.Device),
		})
	}
	return status
}

// ClassQuotaName returns the name by which a quota counts what claims request of a DeviceClass.
func ClassQuotaName(class string) corev1.ResourceName {
	return corev1.ResourceName(class + corev1.ResourceClaimsPerClass)
}
