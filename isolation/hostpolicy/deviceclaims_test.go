// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy_test

import (
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/translate"
)

// Q4, M4: whoever holds the account of the space mine gets devices of no class but those that the quota counts, and hands
// nothing to a driver, or to the host's scheduler, that Berth would not.
func TestHostileResourceClaimsAreRefusedByThePolicies(t *testing.T) {
	const size, fields = "a space's resource claims need a request", hostpolicy.OnlyFields + "resourceclaims"
	selects := func(expression string) func(*resourcev1.ResourceClaim) {
		return func(c *resourcev1.ResourceClaim) {
			c.Spec.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
		}
	}
	for name, tc := range map[string]struct {
		listed  string
		change  func(*resourcev1.ResourceClaim)
		refused string
	}{
		"a class of the quota":       {"example.com/gpu,class:fast", func(*resourcev1.ResourceClaim) {}, ""},
		"a class by its number only": {"deviceclass.resource.kubernetes.io/fast", func(*resourcev1.ResourceClaim) {}, fields},
		"no quota":                   {"", func(*resourcev1.ResourceClaim) {}, fields},
		"a part of a class's name":   {"class:fast.example", func(*resourcev1.ResourceClaim) {}, fields},
		"no request":                 {"class:fast", func(c *resourcev1.ResourceClaim) { c.Spec = resourcev1.ResourceClaimSpec{} }, size},
		"too many requests":          {"class:fast", func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Requests = make([]resourcev1.DeviceRequest, 33) }, size},
		"a simple expression":        {"class:fast", selects(`"m" in device.attributes["d"] && device.attributes["d"].m == "a"`), ""},
		"an expression that repeats": {"class:fast", selects("[1, 2].all(x, [1, 2].all(y, x > y))"), fields},
		"one in several lines":       {"class:fast", selects("[1].all//\n(x, x > 0)"), fields},
		"a long expression":          {"class:fast", selects(strings.Repeat("1 == 1 && ", 26) + "true"), fields},
		"the administrator's access": {"class:fast", func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Requests[0].Exactly.AdminAccess = ptr.To(true) }, fields},
		"a tolerated taint": {"class:fast", func(c *resourcev1.ResourceClaim) {
			c.Spec.Devices.Requests[0].Exactly.Tolerations = []resourcev1.DeviceToleration{{Operator: "Exists"}}
		}, fields},
		"parameters for a driver":    {"class:fast", func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Config = []resourcev1.DeviceClaimConfiguration{{}} }, fields},
		"all devices":                {"class:fast", func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Requests[0].Exactly.AllocationMode = "All" }, ""},
		"alternatives":               {"class:fast,class:slow", alternatives("fast", "slow"), ""},
		"an alternative of no quota": {"class:fast", alternatives("fast", "secret"), fields},
		"a claim of an owner": {"class:fast", func(c *resourcev1.ResourceClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "mine--default--p", UID: "u"}}
		}, "only metadata"},
		"a claim that counts nothing": {"class:fast", func(c *resourcev1.ResourceClaim) { c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] = "true" }, "only metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvaluator(t, hostpolicy.Accounts(), map[string]string{hostpolicy.AnnotationPodResources: tc.listed})
			claim := hostClaim()
			tc.change(claim)
			if message, _ := e.refuses(ofClaims(claim, nil)); (tc.refused == "") != (message == "") || !strings.Contains(message, tc.refused) {
				t.Errorf("%q, want %q", message, tc.refused)
			}
		})
	}
	// What is allocated keeps its class, and the host's finalizer, when the quota loses the class.
	e := newEvaluator(t, hostpolicy.Accounts(), nil)
	was, is := hostClaim(), hostClaim()
	was.Finalizers = []string{resourcev1.Finalizer}
	if message, _ := e.refuses(ofClaims(is, was)); message == "" {
		t.Error("the account removes the finalizer of the host's scheduler")
	}
	is.Finalizers, is.Annotations["berth.dev/more"] = was.Finalizers, "a"
	if message, _ := e.refuses(ofClaims(is, was)); message != "" {
		t.Errorf("an update that leaves the spec is refused: %s", message)
	}
}

func alternatives(classes ...string) func(*resourcev1.ResourceClaim) {
	return func(c *resourcev1.ResourceClaim) {
		c.Spec.Devices.Requests[0].Exactly = nil
		for _, class := range classes {
			c.Spec.Devices.Requests[0].FirstAvailable = append(c.Spec.Devices.Requests[0].FirstAvailable,
				resourcev1.DeviceSubRequest{Name: class, DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1})
		}
	}
}

func hostClaim() *resourcev1.ResourceClaim {
	claim := translate.Space{Name: "mine"}.DeviceClaim(&resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "d", UID: "u"},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "fast", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
		}}}},
	})
	return claim
}

func ofClaims(is, was *resourcev1.ResourceClaim) write {
	w := write{resource: resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), kind: "ResourceClaim", object: is}
	if was != nil {
		w.old = client.Object(was)
	}
	return w
}
