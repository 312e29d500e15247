// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// gadgets is a definition of gadgets, which have one field.
func gadgets(field string) string {
	return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: gadgets.example.com}, spec: {group: example.com,
  scope: Namespaced, names: {plural: gadgets, singular: gadget, kind: Gadget}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object,
    properties: {spec: {type: object, properties: {%s: {type: string, description: the %[1]s of a gadget}}}}}}}]}}`, field)
}

func gadget(name, field string) string {
	return fmt.Sprintf("{apiVersion: example.com/v1, kind: Gadget, metadata: {name: %s}, spec: {%s: x}}", name, field)
}

func crdShare(name, spec string) string {
	return fmt.Sprintf("{apiVersion: berth.dev/v1alpha1, kind: CRDShare, metadata: {name: %s}, spec: %s}", name, spec)
}

func crdPolicy(policy string) string {
	return fmt.Sprintf("{apiVersion: access.berth.dev/v1alpha1, kind: CRDPolicy, metadata: {name: default}, spec: {policy: %s}}", policy)
}

// matched waits until 'berth crd list' prints this line about gadgets, after the name, and kubectl the same.
func (c *cluster) matched(t *testing.T, want string) {
	t.Helper()
	eventually(t, func() error {
		listed, hints, code := runBerth(t, "crd", "list", "--kubeconfig", c.kubeconfig, "gadgets.example.com", "--no-headers")
		if code != 0 {
			return fmt.Errorf("berth crd list exits with %d: %s", code, hints)
		}
		got := c.kubectl(t, "get", "crdmatches", "gadgets.example.com", "--no-headers")
		for what, line := range map[string]string{"berth crd list": listed, "kubectl get crdmatches": got} {
			if line := strings.Join(strings.Fields(line), " "); line != "gadgets.example.com "+want {
				return fmt.Errorf("%s prints %q, want %q", what, line, want)
			}
		}
		return nil
	})
}

// definedBy waits until kubectl explains the spec of gadgets by a field, and lists what there is of them. Without a field, the space must
// have no gadgets.
func (c *cluster) definedBy(t *testing.T, field string, want ...string) {
	t.Helper()
	eventually(t, func() error {
		out, err := c.tryKubectl(t, "", "get", "crd", "gadgets.example.com")
		if field == "" {
			if err == nil || !strings.Contains(out, "not found") {
				return fmt.Errorf("kubectl get crd: %w: %s", orErr(err), out)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("kubectl get crd: %w: %s", err, out)
		}
		if out, err = c.tryKubectl(t, "", "explain", "gadgets.spec"); err != nil || !strings.Contains(out, "the "+field+" of a gadget") {
			return fmt.Errorf("kubectl explain, want the field %s: %w: %s", field, orErr(err), out)
		}
		if out, err = c.tryKubectl(t, "", "get", "gadgets", "-o", "jsonpath={.items[*].metadata.name}"); err != nil {
			return fmt.Errorf("kubectl get gadgets: %w: %s", err, out)
		}
		return expect("gadgets", out, strings.Join(want, " "))
	})
}

// C2, C3, C4, C5, U6: an admin shares a definition of the host with none, some, and all tenants, a tenant chooses, and no switch loses
// anything or wakes a space.
func TestDefinitionsOfTheHostAreShared(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator")
	host := b.host(t)
	host.apply(t, `{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: solar, labels: {tier: gold}}}`)
	host.apply(t, `{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: wind, labels: {tier: tin}}}`)
	for _, name := range []string{"solar", "wind"} {
		eventually(t, func() error { _, err := host.tryKubectl(t, "", "get", "space", name); return err })
		awaitReady(t, host, name, "True")
	}
	solar, wind := b.space(t, "solar"), b.space(t, "wind")
	share := func(spec string) {
		host.apply(t, crdShare("gadgets.example.com", spec))
		host.kubectl(t, "wait", "--for=condition=Ready", "crdshare/gadgets.example.com", "--timeout=30s")
	}

	host.apply(t, crdShare("gadgets.example.com", "{mode: Optional}"))
	eventually(t, func() error {
		out := host.kubectl(t, "get", "crdshare", "gadgets.example.com", "-o", "wide")
		if !strings.Contains(out, "the host has no CustomResourceDefinition gadgets.example.com") {
			return fmt.Errorf("a share of nothing is:\n%s", out)
		}
		return nil
	})
	host.apply(t, gadgets("size"))
	host.kubectl(t, "wait", "--for=condition=Ready", "crdshare/gadgets.example.com", "--timeout=30s")
	solar.definedBy(t, "")

	t.Run("with some tenants", func(t *testing.T) {
		share("{mode: Optional, tenants: [{names: [solar]}]}")
		solar.definedBy(t, "size")
		wind.definedBy(t, "")
		solar.apply(t, gadget("large", "size"))
		solar.definedBy(t, "size", "large")
		if out := host.kubectl(t, "get", "gadgets", "-A", "-o", "name"); out != "" {
			t.Errorf("the host has the gadgets of a tenant: %s", out)
		}
		share("{mode: Optional, tenants: [{names: [nobody]}, {selector: {matchLabels: {tier: tin}}}]}")
		solar.definedBy(t, "")
		wind.definedBy(t, "size")
		host.kubectl(t, "label", "tenant", "wind", "tier=lead", "--overwrite")
		wind.definedBy(t, "")
	})

	t.Run("with all tenants, which choose", func(t *testing.T) {
		share("{mode: Optional, tenants: [{selector: {}}]}")
		solar.definedBy(t, "size", "large") // as it was
		wind.definedBy(t, "size")
		solar.matched(t, "Shared Optional OnlyShared")
		if listed, hints, code := runBerth(t, "crd", "list", "--kubeconfig", solar.kubeconfig, "-o", "name"); code != 0 || !strings.Contains(listed, "crdmatch.access.berth.dev/gadgets.example.com\n") {
			t.Errorf("berth crd list -o name exits with %d and prints %q %s", code, listed, hints)
		}
		solar.apply(t, gadgets("color"))
		solar.definedBy(t, "color")
		solar.matched(t, "Local Optional LocalFirst")
		solar.apply(t, gadget("red", "color"))

		solar.apply(t, crdPolicy("SystemCRDFirst"))
		solar.definedBy(t, "size", "large")
		solar.matched(t, "Shared Optional SystemFirst")
		if out, err := solar.tryKubectl(t, gadgets("weight"), "create", "-f", "-"); err == nil || !strings.Contains(out, "already exists: the platform shares it by the CRDShare gadgets.example.com") {
			t.Errorf("create a definition that the policy doesn't use: %v: %s", err, out)
		}
		solar.apply(t, crdPolicy("NeverUseSystemCRDUnlessForced"))
		solar.definedBy(t, "color", "red")
		solar.matched(t, "Local Optional NeverShared")
		wind.apply(t, crdPolicy("NeverUseSystemCRDUnlessForced"))
		wind.definedBy(t, "")
		wind.matched(t, "None Optional NeverShared")
		solar.apply(t, crdPolicy("LocalCRDFirst"))
		solar.definedBy(t, "color", "red")
		solar.kubectl(t, "delete", "crdpolicy", "default")
		solar.definedBy(t, "color", "red")
		for name, policy := range map[string]string{"Whatever": crdPolicy("Whatever"), "use the name default": strings.Replace(crdPolicy("LocalCRDFirst"), "name: default", "name: other", 1)} {
			if out, err := solar.tryKubectl(t, policy, "create", "-f", "-"); err == nil || !strings.Contains(out, name) {
				t.Errorf("an invalid policy: %v: %s, want a refusal that says %s", err, out, name)
			}
		}
		if out := solar.kubectl(t, "explain", "crdpolicy.spec.policy"); !strings.Contains(out, "SystemCRDFirst") {
			t.Errorf("kubectl explains the policy as:\n%s", out)
		}
	})

	t.Run("by force", func(t *testing.T) {
		share("{mode: Forced, tenants: [{selector: {}}]}")
		wind.definedBy(t, "size") // whatever its policy is
		solar.definedBy(t, "size", "large")
		wind.matched(t, "Shared Forced Forced")
		solar.matched(t, "Shared Forced Forced")
		if out, _, code := runBerth(t, "crd", "list", "--kubeconfig", solar.kubeconfig, "-o", "wide"); code != 0 || !strings.Contains(out, "the space's own is kept, and not used") {
			t.Errorf("berth crd list -o wide exits with %d and prints\n%s", code, out)
		}
		if _, message, code := runBerth(t, "crd", "list", "--kubeconfig", host.kubeconfig); code == 0 || !strings.Contains(message, "berth space connect SPACE -- berth crd list") {
			t.Errorf("berth crd list on the host exits with %d and prints %s", code, message)
		}
		for what, do := range map[string]func() (string, error){
			"create": func() (string, error) { return wind.tryKubectl(t, gadgets("weight"), "create", "-f", "-") },
			"apply":  func() (string, error) { return wind.tryKubectl(t, gadgets("weight"), "apply", "-f", "-") },
			"apply on the server": func() (string, error) {
				return wind.tryKubectl(t, gadgets("weight"), "apply", "--server-side", "--force-conflicts", "-f", "-")
			},
			"delete": func() (string, error) { return solar.tryKubectl(t, "", "delete", "crd", "gadgets.example.com") },
		} {
			const want = "the platform forces its own CustomResourceDefinition gadgets.example.com on this space by the CRDShare gadgets.example.com"
			if out, err := do(); err == nil || !strings.Contains(out, want) {
				t.Errorf("%s: %v: %s, want a refusal that says %s", what, err, out, want)
			}
		}
	})

	t.Run("with a space that has a process of its own", func(t *testing.T) {
		host.apply(t, spaceObject("wind-alone", "{tenantName: wind, isolation: Dedicated}"))
		awaitReady(t, host, "wind-alone", "True")
		alone := b.space(t, "wind-alone")
		alone.definedBy(t, "size")
		alone.apply(t, gadget("small", "size"))
		share("{mode: Optional, tenants: [{names: [solar]}]}")
		alone.definedBy(t, "")
		share("{mode: Forced, tenants: [{selector: {}}]}")
		alone.definedBy(t, "size", "small")
		host.kubectl(t, "delete", "space", "wind-alone")
	})

	t.Run("with a space that sleeps, which isn't woken", func(t *testing.T) {
		host.kubectl(t, "patch", "space", "solar", "--type=merge", "--patch", `{"spec": {"sleep": {"idleAfterSeconds": 3}}}`)
		b.awaitState(t, "solar", "Asleep")
		share("{mode: Optional, tenants: [{selector: {}}]}")
		host.apply(t, gadgets("height"))
		wind.definedBy(t, "") // its policy is NeverUseSystemCRDUnlessForced
		wind.kubectl(t, "delete", "crdpolicy", "default")
		wind.definedBy(t, "height")
		if state, _ := b.stateOf(t, "solar"); state != "Asleep" {
			t.Errorf("the space that sleeps is %s after a change", state)
		}
		solar.definedBy(t, "color", "red") // its own, as it was
		// Whoever waits for the end of the definition gets it, although the host's takes its place.
		solar.kubectl(t, "patch", "crd", "gadgets.example.com", "--type=json", "--patch", `[{"op":"add","path":"/metadata/finalizers","value":["example.com/held"]}]`)
		deleted := make(chan error, 1)
		go func() {
			_, err := solar.tryKubectl(t, "", "delete", "crd", "gadgets.example.com", "--timeout=120s")
			deleted <- err
		}()
		eventually(t, func() error {
			at, err := solar.tryKubectl(t, "", "get", "crd", "gadgets.example.com", "-o", "jsonpath={.metadata.deletionTimestamp}{.metadata.finalizers}")
			return errors.Join(err, expect("what holds the definition", strings.HasSuffix(at, `Z["example.com/held"]`), true))
		})
		solar.kubectl(t, "patch", "crd", "gadgets.example.com", "--type=json", "--patch", `[{"op":"remove","path":"/metadata/finalizers"}]`)
		if err := <-deleted; err != nil {
			t.Errorf("delete the space's own definition: %v", err)
		}
		solar.definedBy(t, "height", "large")
	})

	t.Run("until the share is deleted", func(t *testing.T) {
		host.kubectl(t, "delete", "crdshare", "gadgets.example.com")
		solar.definedBy(t, "")
		wind.definedBy(t, "")
		solar.apply(t, gadgets("width"))
		solar.matched(t, "Local <none> OnlyLocal")
	})
}

// spanDefinition is a definition of spans with these versions, of which the last stores objects.
func spanDefinition(versions ...string) string {
	var all []string
	for i, name := range versions {
		all = append(all, fmt.Sprintf("{name: %s, served: true, storage: %t, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}", name, i == len(versions)-1))
	}
	return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: spans.example.com}, spec: {group: example.com,
  scope: Namespaced, names: {plural: spans, singular: span, kind: Span}, versions: [%s]}}`, strings.Join(all, ", "))
}

// C3, C5: what a space has of a definition outlives that the platform crashes, and that the host drops the version in which the space has
// stored objects.
func TestSharedDefinitionsOutliveUpgradesAndCrashes(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator")
	host := b.host(t)
	host.apply(t, tenantObject("solar", "{}"))
	awaitTenant(t, host, "solar")
	host.apply(t, spanDefinition("v1"))
	host.apply(t, crdShare("spans.example.com", "{mode: Forced, tenants: [{names: [solar]}]}"))
	solar := b.space(t, "solar")
	solar.awaitSpans(t, "v1", "")
	solar.apply(t, "{apiVersion: example.com/v1, kind: Span, metadata: {name: one}, spec: {length: 5}}")

	b.crash(t)
	b.up(t, "--operator")
	host, solar = b.host(t), b.space(t, "solar")
	eventually(t, func() error { // whatever the platform has read by then
		out, err := solar.tryKubectl(t, "", "label", "crd", "spans.example.com", "a=b", "--overwrite")
		if err == nil {
			t.Fatalf("a forced definition is the tenant's after a crash: %s", out)
		}
		return expect("label a forced definition", strings.Contains(out, "the platform forces its own"), true)
	})

	// As an admin upgrades a definition, who has made sure that the host has no objects of the version that goes.
	host.apply(t, spanDefinition("v1", "v2"))
	solar.awaitSpans(t, "v2", "one")
	host.kubectl(t, "patch", "crd", "spans.example.com", "--subresource=status", "--type=merge", "--patch", `{"status": {"storedVersions": ["v2"]}}`)
	host.apply(t, spanDefinition("v2"))
	eventually(t, func() error {
		out, err := solar.tryKubectl(t, "", "get", "spans.v1.example.com")
		if err == nil {
			return fmt.Errorf("the version that the host doesn't have is served: %s", out)
		}
		return nil
	})
	solar.awaitSpans(t, "v2", "one")
	if got := host.kubectl(t, "get", "crdshare", "spans.example.com", "-o", "jsonpath={.status.storedVersions}"); got != `["v1","v2"]` {
		t.Errorf("the share says that spaces have stored objects as %s", got)
	}
	solar.kubectl(t, "delete", "span", "one")
}

// awaitSpans waits until the space serves a version of spans, and lists these.
func (c *cluster) awaitSpans(t *testing.T, version, want string) {
	t.Helper()
	eventually(t, func() error {
		out, err := c.tryKubectl(t, "", "get", "spans."+version+".example.com", "-o", "jsonpath={.items[*].metadata.name}")
		if err != nil {
			return fmt.Errorf("kubectl get spans: %w: %s", err, out)
		}
		return expect("spans of "+version, out, want)
	})
}
