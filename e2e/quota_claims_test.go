// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// devicesOn is a DeviceClass of the host, and four of its devices on a node, two of them of the model b.
func devicesOn(class, node string) string {
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: %[1]s}
spec: {selectors: [{cel: {expression: "device.driver == '%[1]s.example.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: %[1]s}
spec:
  driver: %[1]s.example.com
  nodeName: %[2]s
  pool: {name: %[2]s, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: dev-0, attributes: {model: {string: a}}}
  - {name: dev-1, attributes: {model: {string: a}}}
  - {name: dev-2, attributes: {model: {string: b}}}
  - {name: dev-3, attributes: {model: {string: b}}}
`, class, node)
}

// claimObject is a ResourceClaim with one request.
func claimObject(name, request string) string {
	return "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: " + name + "}\nspec: {devices: {requests: [{name: r, " + request + "}]}}\n"
}

// templateObject is a template of such claims.
func templateObject(name, request string) string {
	return "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: " + name + "}\nspec: {spec: {devices: {requests: [{name: r, " + request + "}]}}}\n"
}

// claimingPod is a pod whose container uses a claim.
func claimingPod(name string, claim corev1.PodResourceClaim) *corev1.Pod {
	return newPod(name, func(p *corev1.Pod) {
		claim.Name = "d"
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{claim}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "d"}}
	})
}

func byName(claim string) corev1.PodResourceClaim {
	return corev1.PodResourceClaim{ResourceClaimName: ptr.To(claim)}
}

func byTemplate(template string) corev1.PodResourceClaim {
	return corev1.PodResourceClaim{ResourceClaimTemplateName: ptr.To(template)}
}

// claimsOnHost returns the names of the claims of a space on the host.
func claimsOnHost(t *testing.T, host *cluster, space string) []string {
	t.Helper()
	return strings.Fields(host.kubectl(t, "get", "resourceclaims", "--namespace", "berth-"+space, "-o", "jsonpath={.items[*].metadata.name}"))
}

// awaitWaiting waits for a pod that refers to a claim, and checks that it has no node.
func (c *cluster) awaitWaiting(t *testing.T, namespace, name, claim string) {
	t.Helper()
	eventually(t, func() error {
		pod, err := c.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if refers := *pod.Spec.ResourceClaims[0].ResourceClaimName; refers != claim || pod.Spec.NodeName != "" {
			return fmt.Errorf("pod %s refers to the claim %s, and is on the node %q", name, refers, pod.Spec.NodeName)
		}
		return nil
	})
}

// awaitClaim returns the claim that was created for a pod by a template, once it is another than a former one.
func (c *cluster) awaitClaim(t *testing.T, pod, former string) (claim string) {
	t.Helper()
	eventually(t, func() error {
		v, err := c.CoreV1().Pods("default").Get(t.Context(), pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(v.Status.ResourceClaimStatuses) != 1 || *v.Status.ResourceClaimStatuses[0].ResourceClaimName == former {
			return fmt.Errorf("pod %s has the claims %+v", pod, v.Status.ResourceClaimStatuses)
		}
		claim = *v.Status.ResourceClaimStatuses[0].ResourceClaimName
		return nil
	})
	return claim
}

// awaitUser waits until a claim has a device, and one pod that uses it.
func (c *cluster) awaitUser(t *testing.T, claim, pod string) {
	t.Helper()
	eventually(t, func() error {
		v, err := c.ResourceV1().ResourceClaims("default").Get(t.Context(), claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if v.Status.Allocation == nil || len(v.Status.ReservedFor) != 1 || v.Status.ReservedFor[0].Name != pod {
			return fmt.Errorf("the status of claim %s is %+v", claim, v.Status)
		}
		return nil
	})
}

const fastExactly = "exactly: {deviceClassName: fast"

// Q4: a tenant claims devices of the classes that the quota names, by name and by template, selects them by attributes, shares them
// between pods, and gets not one more, also after a crash. Nothing of the host is to be seen in the space, and nothing stays on the host.
func TestTenantsClaimTheDevicesThatTheQuotaNames(t *testing.T) {
	t.Parallel()
	config := configured(t, `
spaceDefaults:
  sync: [{resource: resourceclaims, value: "on"}]
spaces:
- metadata: {name: demo}
  spec: {quota: {fast.deviceclass.resource.k8s.io/devices: "2"}}
- metadata: {name: other}`)
	b := start(t, config)
	demo, host := b.demo(t), b.host(t)
	host.apply(t, devicesOn("fast", "host-node-1"))

	demo.apply(t, claimObject("shared", fastExactly+`, selectors: [{cel: {expression: 'device.attributes["fast.example.com"].model == "b"'}}]}`))
	demo.apply(t, templateObject("each", fastExactly+"}"))
	first := demo.run(t, "default", claimingPod("first", byName("shared")))
	demo.run(t, "default", claimingPod("second", byName("shared")))
	own := demo.run(t, "default", claimingPod("own", byTemplate("each")))

	var version string
	eventually(t, func() error { // the tenant sees which pods share the claim, and nothing of the host
		claim, err := demo.ResourceV1().ResourceClaims("default").Get(t.Context(), "shared", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if claim.Status.Allocation == nil || len(claim.Status.Allocation.Devices.Results) != 1 || len(claim.Status.ReservedFor) != 2 {
			return fmt.Errorf("its status is %+v", claim.Status)
		}
		result := claim.Status.Allocation.Devices.Results[0]
		if result.Driver != "devices.berth.dev" || !strings.HasPrefix(result.Pool, "pool-") || !strings.HasPrefix(result.Device, "device-") ||
			claim.Status.Allocation.NodeSelector != nil || claim.Status.ReservedFor[0].UID != first.UID && claim.Status.ReservedFor[1].UID != first.UID {
			return fmt.Errorf("its status is %+v", claim.Status)
		}
		version = claim.ResourceVersion
		return nil
	})
	onHost := must(host.ResourceV1().ResourceClaims(hostNamespace).Get(t.Context(), hostName("default", "shared"), metav1.GetOptions{}))(t)
	if device := onHost.Status.Allocation.Devices.Results[0].Device; device != "dev-2" && device != "dev-3" {
		t.Errorf("the claim has the device %s, which is of another model", device)
	}
	generated := *own.Status.ResourceClaimStatuses[0].ResourceClaimName
	if pod := must(host.CoreV1().Pods(hostNamespace).Get(t.Context(), hostName("default", "own"), metav1.GetOptions{}))(t); *pod.Spec.ResourceClaims[0].ResourceClaimName != hostName("default", generated) {
		t.Errorf("the host pod has the claims %+v, want %s", pod.Spec.ResourceClaims, generated)
	}

	// One device more than the quota allows, in a claim of its own, and by a template.
	demo.apply(t, claimObject("third", fastExactly+"}"))
	event := demo.awaitEvent(t, "default", "ResourceClaim", "third", "HostQuotaExceeded")
	for _, text := range []string{"requested: fast.deviceclass.resource.k8s.io/devices=1", "used: fast.deviceclass.resource.k8s.io/devices=2", "limited: fast.deviceclass.resource.k8s.io/devices=2"} {
		if !strings.Contains(event.Message, text) {
			t.Errorf("the refusal is %q, want %q", event.Message, text)
		}
	}
	if _, err := demo.CoreV1().Pods("default").Create(t.Context(), claimingPod("third", byName("third")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	host.awaitWaiting(t, hostNamespace, hostName("default", "third"), hostName("default", "third"))

	if claim := must(demo.ResourceV1().ResourceClaims("default").Get(t.Context(), "shared", metav1.GetOptions{}))(t); claim.ResourceVersion != version {
		t.Errorf("the claim is written again and again: its version is %s, it was %s", claim.ResourceVersion, version)
	}
	// A pod that waits gets another claim, once the controller finds that the one which it created is gone.
	if _, err := demo.CoreV1().Pods("default").Create(t.Context(), claimingPod("late", byTemplate("each")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waits := demo.awaitClaim(t, "late", "")
	host.awaitWaiting(t, hostNamespace, hostName("default", "late"), hostName("default", waits))
	demo.kubectl(t, "delete", "resourceclaim", waits)
	b.crash(t)
	b.up(t, config)
	demo, host = b.demo(t), b.host(t)
	host.awaitWaiting(t, hostNamespace, hostName("default", "late"), hostName("default", demo.awaitClaim(t, "late", waits)))
	demo.kubectl(t, "delete", "pod", "late")
	if claims := claimsOnHost(t, host, "demo"); len(claims) != 2 {
		t.Errorf("the host has the claims %q, want 2", claims)
	}
	// A claim that a pod uses is deleted on the host with the pod, and what it frees the next one gets.
	demo.kubectl(t, "delete", "resourceclaim", "shared", "--wait=false")
	demo.kubectl(t, "delete", "pod", "first", "second")
	demo.awaitRunning(t, "default", "third")
	demo.kubectl(t, "delete", "pod", "third") // the next pod may get another device for the same claim
	demo.run(t, "default", claimingPod("fourth", byName("third")))
	demo.awaitUser(t, "third", "fourth")
	demo.kubectl(t, "delete", "pod", "own") // its claim is deleted with it
	demo.run(t, "default", claimingPod("again", byTemplate("each")))

	demo.kubectl(t, "delete", "pods,resourceclaims,resourceclaimtemplates", "--all")
	eventually(t, func() error {
		if claims := claimsOnHost(t, host, "demo"); len(claims) > 0 {
			return fmt.Errorf("the host still has %q", claims)
		}
		return expect("devices that the quota counts", host.kubectl(t, "get", "resourcequota", "berth", "--namespace", hostNamespace, "-o", `jsonpath={.status.used.fast\.deviceclass\.resource\.k8s\.io/devices}`), "0")
	})
}

// Q4, M4: what claims could reach beyond the classes of the quota is refused, and the field is named, with what to do.
func TestHostileResourceClaimsAreRefused(t *testing.T) {
	t.Parallel()
	b := start(t, configured(t, `
spaceDefaults:
  sync: [{resource: resourceclaims, value: "on"}]
spaces:
- metadata: {name: demo}
  spec: {quota: {fast.deviceclass.resource.k8s.io/devices: "2", requests.deviceclass.resource.kubernetes.io/number: "2"}}
- metadata: {name: other}
  spec: {quota: {slow.deviceclass.resource.k8s.io/devices: "2"}}
- metadata: {name: none}
- metadata: {name: apart}
  spec: {sync: [{resource: resourceclaims, value: "off"}], quota: {fast.deviceclass.resource.k8s.io/devices: "2"}}`))
	demo, other, apart, host := b.demo(t), b.space(t, "other"), b.space(t, "apart"), b.host(t)
	host.apply(t, devicesOn("fast", "host-node-1"))
	demo.kubectl(t, "label", "namespace", "default", "resource.kubernetes.io/admin-access=true")
	for _, tc := range []struct {
		name    string
		space   *cluster
		request string
		says    []string
	}{
		{"a class of another tenant's quota", other, fastExactly + "}", []string{"deviceClassName", `"fast"`, "fast.deviceclass.resource.k8s.io/devices", "ask the platform's admin to add it"}},
		{"a class that no quota names", demo, "exactly: {deviceClassName: secret}", []string{"spec.devices.requests[0].exactly.deviceClassName", "secret.deviceclass.resource.k8s.io/devices"}},
		{"a class whose claims are not counted", demo, "exactly: {deviceClassName: number}", []string{"number.deviceclass.resource.k8s.io/devices"}},
		{"an alternative", demo, "firstAvailable: [{name: a, deviceClassName: fast}, {name: b, deviceClassName: secret}]", []string{"firstAvailable[1].deviceClassName", `"secret"`}},
		{"the administrator's access", demo, fastExactly + ", adminAccess: true}", []string{"adminAccess", "remove the field"}},
		{"tolerations", demo, fastExactly + ", tolerations: [{operator: Exists}]}", []string{"tolerations"}},
		{"an expression that repeats", demo, fastExactly + `, selectors: [{cel: {expression: "[1, 2].all(x, x > 0)"}}]}`, []string{"selectors[0].cel.expression", "no calls other than quantity"}},
		{"parameters", demo, fastExactly + "}}], config: [{opaque: {driver: fast.example.com, parameters: {a: b}}", []string{"spec.devices.config", "DeviceClass with these parameters"}},
	} {
		for kind, object := range map[string]string{"claim": claimObject("hostile", tc.request), "template": templateObject("hostile", tc.request)} {
			out, err := tc.space.tryKubectl(t, object, "apply", "-f", "-")
			if err == nil {
				t.Errorf("%s: the %s is allowed", tc.name, kind)
			}
			for _, text := range tc.says {
				if !strings.Contains(out, strings.Replace(text, "spec.devices", map[string]string{"claim": "spec.devices", "template": "spec.spec.devices"}[kind], 1)) {
					t.Errorf("%s: the %s is refused with %q, want %q", tc.name, kind, out, text)
				}
			}
		}
	}
	// More than the quota in one request, and all devices of a node, are beyond it.
	demo.apply(t, claimObject("three", fastExactly+", count: 3}"))
	demo.awaitMessage(t, "requested: fast.deviceclass.resource.k8s.io/devices=3", "limited: fast.deviceclass.resource.k8s.io/devices=2")
	demo.apply(t, claimObject("all", fastExactly+", allocationMode: All}"))
	demo.awaitMessage(t, "requested: fast.deviceclass.resource.k8s.io/devices=32", "limited: fast.deviceclass.resource.k8s.io/devices=2")

	// A claim that no pod of another space can have.
	demo.apply(t, claimObject("mine", fastExactly+"}"))
	demo.run(t, "default", claimingPod("mine", byName("mine")))
	if _, err := other.CoreV1().Pods("default").Create(t.Context(), claimingPod("thief", byName("mine")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	host.awaitWaiting(t, "berth-other", "other--default--thief", "other--default--mine") // as without such a claim

	_, err := b.space(t, "none").CoreV1().Pods("default").Create(t.Context(), claimingPod("mine", byName("mine")), metav1.CreateOptions{})
	refused(t, "a pod with a claim in a space without classes", err, "add CLASS.deviceclass.resource.k8s.io/devices to the quota")
	// Where claims aren't synced, they stay in the space, and pods that refer to them are refused.
	apart.apply(t, claimObject("mine", "exactly: {deviceClassName: secret}"))
	_, err = apart.CoreV1().Pods("default").Create(t.Context(), claimingPod("mine", byName("mine")), metav1.CreateOptions{})
	refused(t, "a pod with a claim", err, "ask the platform's admin to sync resourceclaims")
	for _, space := range []string{"other", "apart"} {
		if claims := claimsOnHost(t, host, space); len(claims) > 0 {
			t.Errorf("the host has the claims %q of space %s", claims, space)
		}
	}
}

// Q2, Q4, T9: claims count in the quota of the tenant, over all of its spaces and those of the tenants below, also in a process of their own,
// and what one frees another one gets.
func TestClaimsOfATenantCountInItsQuota(t *testing.T) {
	t.Parallel()
	b := start(t, configured(t, `
spaceDefaults:
  sync: [{resource: resourceclaims, value: "on"}]`), "--operator")
	host := b.host(t)
	host.apply(t, devicesOn("fast", "host-node-1"))
	for _, tenant := range [][2]string{{"acme", "{quota: {fast.deviceclass.resource.k8s.io/devices: 2}}"}, {"acme-a", "{parent: acme, quota: {fast.deviceclass.resource.k8s.io/devices: 2}, space: {isolation: Dedicated}}"}, {"rival", "{}"}} {
		host.apply(t, tenantObject(tenant[0], tenant[1]))
		awaitTenant(t, host, tenant[0])
	}
	acme, below, rival := b.space(t, "acme"), b.space(t, "acme-a"), b.space(t, "rival")
	acme.apply(t, claimObject("one", fastExactly+"}"))
	acme.run(t, "default", claimingPod("one", byName("one")))
	below.apply(t, templateObject("each", fastExactly+"}"))
	below.run(t, "default", claimingPod("two", byTemplate("each")))
	for _, space := range []string{"acme", "acme-a"} { // the host may have counted just before a claim came, and missed it
		host.countsAgain(t, space)
	}
	acme.apply(t, claimObject("three", fastExactly+"}"))
	event := acme.awaitEvent(t, "default", "ResourceClaim", "three", "HostQuotaExceeded")
	for _, text := range []string{"requested: fast.deviceclass.resource.k8s.io/devices=1", "used: fast.deviceclass.resource.k8s.io/devices=1"} {
		if !strings.Contains(event.Message, text) {
			t.Errorf("the refusal is %q, want %q", event.Message, text)
		}
	}
	if out, err := rival.tryKubectl(t, claimObject("one", fastExactly+"}"), "apply", "-f", "-"); err == nil || !strings.Contains(out, "the quota of the space doesn't name fast.deviceclass.resource.k8s.io/devices") {
		t.Errorf("a claim of a tenant whose quota doesn't name the class: %s", out)
	}
	below.kubectl(t, "delete", "pod", "two")
	acme.run(t, "default", claimingPod("three", byName("three")))
}

// countsAgain waits until the host was told to count again what a space uses, and counts one device.
func (c *cluster) countsAgain(t *testing.T, space string) {
	t.Helper()
	eventually(t, func() error {
		quota, err := c.CoreV1().ResourceQuotas("berth-"+space).Get(t.Context(), "berth", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if _, counted := quota.Spec.Hard[v1alpha1.ResourceRecount]; !counted {
			return fmt.Errorf("the host isn't told to count again what %s uses", space)
		}
		used := quota.Status.Used["fast.deviceclass.resource.k8s.io/devices"]
		return expect("the devices of "+space, used.String(), "1")
	})
}
