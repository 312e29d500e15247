// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/translate"
)

func deviceClaim(change func(*resourcev1.ExactDeviceRequest)) *resourcev1.ResourceClaim {
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: "fast", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 2}
	change(exactly)
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "d", UID: "u", Labels: map[string]string{"a": "b"}, Finalizers: []string{"a.example/b"}},
		Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: exactly}}}},
	}
}

func checkDeviceClaim(v *resourcev1.ResourceClaim) error {
	counted := translate.CountedBy(corev1.ResourceList{"fast.deviceclass.resource.k8s.io/devices": {}, "requests.deviceclass.resource.kubernetes.io/number": {}})
	return translate.CheckDeviceClaim(counted, field.NewPath("spec"), &v.ObjectMeta, &v.Spec).ToAggregate()
}

// Q4: a claim may request devices of the classes that the quota counts. What else it could ask of the host's scheduler and drivers
// is refused, with the field.
func TestHostileDeviceClaimsAreRefused(t *testing.T) {
	const first = "spec.devices.requests[0].exactly."
	alternative := func(class string) func(*resourcev1.ResourceClaim) {
		return func(v *resourcev1.ResourceClaim) {
			v.Spec.Devices.Requests = append(v.Spec.Devices.Requests, resourcev1.DeviceRequest{Name: "s", FirstAvailable: []resourcev1.DeviceSubRequest{{Name: "a", DeviceClassName: class}}})
		}
	}
	exactly := func(change func(*resourcev1.ExactDeviceRequest)) func(*resourcev1.ResourceClaim) {
		return func(v *resourcev1.ResourceClaim) { change(v.Spec.Devices.Requests[0].Exactly) }
	}
	for name, tc := range map[string]struct {
		change func(*resourcev1.ResourceClaim)
		says   []string // nothing: it is allowed
	}{
		"a class of the quota": {func(*resourcev1.ResourceClaim) {}, nil},
		"all of a class": {exactly(func(r *resourcev1.ExactDeviceRequest) {
			r.AllocationMode, r.Count = resourcev1.DeviceAllocationModeAll, 0
		}), nil},
		"an alternative":            {alternative("fast"), nil},
		"no administrator's access": {exactly(func(r *resourcev1.ExactDeviceRequest) { r.AdminAccess = ptr.To(false) }), nil},
		"constraints": {func(v *resourcev1.ResourceClaim) {
			v.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{Requests: []string{"r"}, MatchAttribute: ptr.To[resourcev1.FullyQualifiedName]("a.example/b")}}
		}, nil},
		"another class":                         {exactly(func(r *resourcev1.ExactDeviceRequest) { r.DeviceClassName = "slow" }), []string{first + "deviceClassName", `"slow"`, "slow.deviceclass.resource.k8s.io/devices", "ask the platform's admin"}},
		"a class that is counted by pods only":  {exactly(func(r *resourcev1.ExactDeviceRequest) { r.DeviceClassName = "number" }), []string{first + "deviceClassName"}},
		"an alternative of another class":       {alternative("slow"), []string{"spec.devices.requests[1].firstAvailable[0].deviceClassName"}},
		"the administrator's access":            {exactly(func(r *resourcev1.ExactDeviceRequest) { r.AdminAccess = ptr.To(true) }), []string{first + "adminAccess"}},
		"a device that the admin has tainted":   {exactly(func(r *resourcev1.ExactDeviceRequest) { r.Tolerations = []resourcev1.DeviceToleration{{}} }), []string{first + "tolerations"}},
		"a part of a device":                    {exactly(func(r *resourcev1.ExactDeviceRequest) { r.Capacity = &resourcev1.CapacityRequirements{} }), []string{first + "capacity"}},
		"attributes that an expression derives": {exactly(func(r *resourcev1.ExactDeviceRequest) { r.DerivedAttributes = []resourcev1.DeviceDerivedAttribute{{}} }), []string{first + "derivedAttributes"}},
		"parameters for a driver":               {func(v *resourcev1.ResourceClaim) { v.Spec.Devices.Config = []resourcev1.DeviceClaimConfiguration{{}} }, []string{"spec.devices.config", "DeviceClass"}},
		"nothing":                               {func(v *resourcev1.ResourceClaim) { v.Spec.Devices.Requests = nil }, []string{"spec.devices.requests"}},
		"a request of a kind that is newer":     {func(v *resourcev1.ResourceClaim) { v.Spec.Devices.Requests[0].Exactly = nil }, []string{"spec.devices.requests[0]"}},
		"a selector of a kind that is newer":    {exactly(func(r *resourcev1.ExactDeviceRequest) { r.Selectors = []resourcev1.DeviceSelector{{}} }), []string{first + "selectors[0]"}},
		"too many selectors": {exactly(func(r *resourcev1.ExactDeviceRequest) {
			r.Selectors = make([]resourcev1.DeviceSelector, bounds.ClaimParts.Max())
		}), []string{"33 parts, at most 32"}},
		"long annotations": {func(v *resourcev1.ResourceClaim) { v.Annotations = map[string]string{"a": strings.Repeat("b", 32<<10)} }, []string{"bytes, at most 32768"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := deviceClaim(func(*resourcev1.ExactDeviceRequest) {})
			tc.change(v)
			err := checkDeviceClaim(v)
			if (err == nil) != (tc.says == nil) {
				t.Fatalf("%v, want %q", err, tc.says)
			}
			for _, text := range tc.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v, want %q", err, text)
				}
			}
		})
	}
}

// Q4: the host's scheduler evaluates selectors for each device of each node, so none of a space may repeat anything.
func TestSelectorsOfSpacesAreSimple(t *testing.T) {
	for expression, simple := range map[string]bool{
		`device.attributes["gpu.example.com"].model == "large"`:                                                                      true,
		`"model" in device.attributes["d"] && (device.attributes["d"].model == "a" || device.attributes["d"].model.startsWith("b"))`: true,
		`device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0`:                                                 true,
		`device.attributes["d"].?version.orValue(semver("0.0.0")).isGreaterThan(semver("1.2.3"))`:                                    true,
		`!(device.driver == 'a') ? 1 in [1, 2] : true`:                                                                               true,
		`[1, 2].all(x, x > 0)`:                    false,
		`[1, 2].all (x, x > 0)`:                   false,
		"[1, 2].all\n(x, x > 0)":                  false,
		"[1, 2].all//\n(x, x > 0)":                false,
		"[1, 2].all\t(x, x > 0)":                  false,
		"[1, 2]. all(x, x > 0)":                   false,
		`[1, 2].map(x, x).contains(1)`:            false,
		`"a".replace("a", "aaaa") == "b"`:         false,
		`"a".matches("a")`:                        false,
		`"ä" == "a"`:                              false,
		strings.Repeat("1 == 1 && ", 25) + "true": true,
		strings.Repeat("1 == 1 && ", 26) + "true": false,
	} {
		v := deviceClaim(func(r *resourcev1.ExactDeviceRequest) {
			r.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
		})
		if err := checkDeviceClaim(v); (err == nil) != simple {
			t.Errorf("%s: %v", expression, err)
		}
		if simple { // it is one that a host takes, too, and costs it little
			result := dracel.GetCompiler(dracel.Features{}).CompileCELExpression(expression, dracel.Options{})
			if result.Error != nil || result.MaxCost > 1000 {
				t.Errorf("%s costs %d: %v", expression, result.MaxCost, result.Error)
			}
		}
	}
}

// Whatever passes as a simple expression calls no function but those that are listed.
func FuzzSelectorsOfSpacesAreSimple(f *testing.F) {
	for _, seed := range []string{`[1].all(x, true)`, "a.all\n(b)", "a.contains(b)", "xcontains(b)", "a . all (b)", "a.`all`(b)", "has(a.b)//(c)"} {
		f.Add(seed)
	}
	calls := strings.Split(translate.SelectorCalls, "|")
	f.Fuzz(func(t *testing.T, expression string) {
		if err := checkDeviceClaim(deviceClaim(func(r *resourcev1.ExactDeviceRequest) {
			r.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
		})); err != nil {
			return
		}
		for i := range expression {
			if expression[i] != '(' {
				continue
			}
			before := strings.TrimRight(expression[:i], " \n\t\r\f")
			word := before[strings.LastIndexFunc(before, func(r rune) bool {
				return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
			})+1:]
			known := word == ""
			for _, call := range calls {
				known = known || word == call
			}
			if !known {
				t.Errorf("%q calls %s", expression, word)
			}
		}
	})
}

// N1, Q4: the host claim has the fields that are known, and the space sees aliases of what belongs to nodes.
func TestDeviceClaimsHideTheHost(t *testing.T) {
	space := translate.Space{Name: "shop", NodeKey: []byte("key")}
	v := deviceClaim(func(r *resourcev1.ExactDeviceRequest) {
		r.AdminAccess, r.Tolerations, r.Capacity = ptr.To(true), []resourcev1.DeviceToleration{{}}, &resourcev1.CapacityRequirements{}
		r.DerivedAttributes = []resourcev1.DeviceDerivedAttribute{{}}
	})
	v.Spec.Devices.Config = []resourcev1.DeviceClaimConfiguration{{}}
	host := space.DeviceClaim(v)
	if diff := cmp.Diff(deviceClaim(func(*resourcev1.ExactDeviceRequest) {}).Spec, host.Spec); diff != "" {
		t.Errorf("on the host: -want +got:\n%s", diff)
	}
	if host.Name != "shop--default--d" || host.Namespace != "berth-shop" || len(host.Finalizers) > 0 || host.Labels["a"] != "" {
		t.Errorf("on the host: %+v", host.ObjectMeta)
	}

	users := []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "u"}}
	if status := space.PullDeviceClaimStatus(host, users); status.Allocation != nil || status.ReservedFor != nil {
		t.Errorf("before the allocation: %+v", status)
	}
	result := resourcev1.DeviceRequestAllocationResult{
		Request: "r", Driver: "gpu.example.com", Pool: "node-7", Device: "gpu-0", AdminAccess: ptr.To(true), ShareID: ptr.To(metav1.ObjectMeta{}.UID), BindingConditions: []string{"c"},
	}
	at := metav1.NewTime(time.Unix(1e9, 0))
	host.Status = resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{
			Devices:      resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{result}, Config: []resourcev1.DeviceAllocationConfiguration{{}}},
			NodeSelector: &corev1.NodeSelector{}, AllocationTimestamp: &at,
		},
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "shop--default--p", UID: "host"}},
		Devices:     []resourcev1.AllocatedDeviceStatus{{Driver: "gpu.example.com", NetworkData: &resourcev1.NetworkDeviceData{IPs: []string{"10.0.0.1/8"}}}},
	}
	status := space.PullDeviceClaimStatus(host, users)
	inSpace := &status.Allocation.Devices.Results[0]
	for _, name := range []string{inSpace.Pool, inSpace.Device} {
		if strings.Contains(name, "7") && strings.Contains(name, "node") || strings.HasSuffix(name, "gpu-0") || len(name) < 12 {
			t.Errorf("the tenant sees %s", name)
		}
	}
	pool, device := inSpace.Pool, inSpace.Device
	inSpace.Pool, inSpace.Device = "", ""
	want := resourcev1.ResourceClaimStatus{
		ReservedFor: users,
		Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "devices.berth.dev"}},
		}},
	}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("in the space: -want +got:\n%s", diff)
	}
	again := space.PullDeviceClaimStatus(host, nil).Allocation.Devices.Results[0]
	other := translate.Space{Name: "other", NodeKey: []byte("key")}.PullDeviceClaimStatus(host, nil).Allocation.Devices.Results[0]
	if again.Pool != pool || again.Device != device || other.Pool == pool || other.Device == device {
		t.Error("aliases are the same for one space, and differ between spaces")
	}
}
