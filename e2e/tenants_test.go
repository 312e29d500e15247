// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// tenantObject is a manifest; spec is in YAML's flow style.
func tenantObject(name, spec string) string {
	return fmt.Sprintf("{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: %s}, spec: %s}", name, spec)
}

// awaitTenant waits until a tenant exists and is ready.
func awaitTenant(t *testing.T, host *cluster, name string) {
	t.Helper()
	awaitObject(t, host, "tenant/"+name)
	host.kubectl(t, "wait", "--for=condition=Ready", "tenant/"+name, "--timeout=180s")
}

// awaitObject waits until an object exists, which the operator creates some time after berth serves.
func awaitObject(t *testing.T, host *cluster, name string) {
	t.Helper()
	eventually(t, func() error {
		out, err := host.tryKubectl(t, "", "get", name)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// T1, T3, T6, T7, X6: a tenant comes with its space, and goes with everything that it had, also if Berth is killed on the way.
// Another tenant isn't interrupted.
func TestATenantComesAndGoes(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator", "--space", "other")
	host := b.host(t)
	for _, name := range []string{"system", "default"} { // T3
		awaitTenant(t, host, name)
		if out, err := host.tryKubectl(t, "", "delete", "tenant", name, "--wait=false"); err == nil || !strings.Contains(out, "always exists") {
			t.Errorf("kubectl delete tenant %s: %s", name, out)
		}
	}
	if out, err := host.tryKubectl(t, "", "get", "space", "system"); err == nil {
		t.Errorf("the tenant system has a Space: %s", out)
	}
	awaitObject(t, host, "space/default")
	host.kubectl(t, "wait", "--for=condition=Ready", "space/default", "--timeout=180s")

	for _, name := range []string{"gone", "stays"} {
		host.apply(t, tenantObject(name, "{hostNamespaces: {labels: {example.com/cost-center: '7'}}}"))
		awaitTenant(t, host, name)
	}
	host.apply(t, spaceObject("gone-too", "{tenantName: gone}")) // a tenant may own more spaces
	host.kubectl(t, "wait", "--for=condition=Ready", "space/gone-too", "--timeout=180s")
	eventually(t, func() error {
		return expect("the spaces of the tenant", host.kubectl(t, "get", "tenant", "gone", "-o", "jsonpath={.status.spaces} {.status.summary.spaces}"), `["gone","gone-too"] 2/2`)
	})
	eventually(t, func() error {
		return expect("the label of the host namespace", host.kubectl(t, "get", "ns", "berth-gone-too", "-o", `jsonpath={.metadata.labels.example\.com/cost-center}`), "7")
	})
	gone, stays := b.space(t, "gone"), b.space(t, "stays")
	pod := stays.run(t, "default", newPod("stays"))
	gone.kubectl(t, "create", "deployment", "web", "--image=nginx", "--replicas=2")
	gone.awaitPods(t, "default", "app=web", 2)

	host.kubectl(t, "delete", "tenant", "gone", "--wait=false")
	b.crash(t)
	b.up(t, "--operator", "--space", "other")
	host = b.host(t)
	host.kubectl(t, "wait", "--for=delete", "tenant/gone", "--timeout=120s")
	for _, name := range []string{"gone", "gone-too"} {
		if left := traces(t, host, b.dir, name); len(left) > 0 {
			t.Errorf("%s has left %q", name, left)
		}
	}
	if now := b.space(t, "stays").awaitRunning(t, "default", "stays"); now.UID != pod.UID {
		t.Error("the other tenant lost its pod")
	}
	b.stop(t, syscall.SIGTERM)
}

// H1, H2, H3, H4, H7: the tree of tenants. Rights flow down it, and stop at private tenants; a subtree is deleted only with consent.
func TestTenantsAreATree(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator", "--space", "other")
	host := b.host(t)
	for _, tenant := range [][2]string{
		{"tree-a", "{owners: [{kind: User, name: alice}], ownerProfile: NamespaceAdmin}"}, {"tree-b", "{parent: tree-a, owners: [{kind: User, name: bob}]}"},
		{"tree-c", "{parent: tree-a, private: true}"}, {"tree-d", "{parent: tree-b}"},
	} {
		host.apply(t, tenantObject(tenant[0], tenant[1]))
		awaitTenant(t, host, tenant[0])
	}
	for ancestor, want := range map[string]string{"tree-a": "tree-b tree-c tree-d", "tree-b": "tree-d", "tree-c": "", "tree-d": ""} { // the table of seed KS
		eventually(t, func() error {
			return expect("below "+ancestor, host.kubectl(t, "get", "tenants", "-l", "tree.berth.dev/"+ancestor, "-o", "jsonpath={.items[*].metadata.name}"), want)
		})
		eventually(t, func() error {
			return expect("the spaces below "+ancestor, host.kubectl(t, "get", "spaces", "-l", "tree.berth.dev/"+ancestor, "-o", "jsonpath={.items[*].metadata.name}"), want)
		})
	}
	owners := func(tenant string) string {
		return host.kubectl(t, "get", "tenant", tenant, "-o", `jsonpath={range .status.owners[*]}{.name}{"<"}{.inheritedFrom}{" "}{end}`)
	}
	for tenant, want := range map[string]string{"tree-a": "alice< ", "tree-b": "alice<tree-a bob< ", "tree-c": "", "tree-d": "alice<tree-a bob<tree-b "} {
		eventually(t, func() error { return expect("the owners of "+tenant, owners(tenant), want) })
	}
	d := &capsule{host: host, space: b.space(t, "tree-d")}
	d.can(t, alice, "create namespaces", "yes")
	c := &capsule{host: host, space: b.space(t, "tree-c")}
	c.can(t, alice, "create namespaces", "no")
	host.kubectl(t, "patch", "tenant", "tree-a", "--type=merge", "-p", `{"spec":{"owners":[{"kind":"User","name":"anna"}]}}`)
	d.can(t, alice, "create namespaces", "no")
	d.can(t, "--as anna --as-group berth.dev", "create namespaces", "yes")

	for name, tc := range map[string]struct{ spec, says string }{
		"tree-e": {"{parent: tree-b, private: true}", "neither private nor a root"},
		"tree-f": {"{parent: nobody}", "there is no tenant"},
	} {
		host.apply(t, tenantObject(name, tc.spec))
		eventually(t, func() error {
			ready := host.kubectl(t, "get", "tenant", name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].reason}: {.status.conditions[?(@.type=="Ready")].message}`)
			if !strings.HasPrefix(ready, "InvalidParent: ") || !strings.Contains(ready, tc.says) {
				return fmt.Errorf("tenant %s is %q", name, ready)
			}
			return nil
		})
		if out, err := host.tryKubectl(t, "", "get", "space", name); err == nil {
			t.Errorf("a tenant that can't be in the tree has a space: %s", out)
		}
		host.kubectl(t, "delete", "tenant", name, "--timeout=180s")
	}
	if out, err := host.tryKubectl(t, "", "patch", "tenant", "tree-d", "--type=merge", "-p", `{"spec":{"parent":"tree-c"}}`); err == nil || !strings.Contains(out, "can't be changed") {
		t.Errorf("a tenant has another parent: %s", out)
	}
	if out, err := host.tryKubectl(t, "", "delete", "tenant", "tree-a", "--wait=false"); err == nil || !strings.Contains(out, "Subtree") {
		t.Errorf("a tenant with children is deleted without consent: %s", out)
	}
	host.kubectl(t, "patch", "tenant", "tree-a", "--type=merge", "-p", `{"spec":{"deletionPropagation":"Subtree"}}`)
	host.kubectl(t, "delete", "tenant", "tree-a", "--timeout=120s")
	eventually(t, func() error {
		return expect("what is left", host.kubectl(t, "get", "tenants,spaces", "-o", "jsonpath={.items[*].metadata.name}"), "default system default other")
	})
	for _, name := range []string{"tree-a", "tree-b", "tree-c", "tree-d"} {
		if left := traces(t, host, b.dir, name); len(left) > 0 {
			t.Errorf("%s has left %q", name, left)
		}
	}
}

// O8: the numbers and the state of a tenant, what its namespaces have, and a cordon.
func TestATenantsNamespacesAreAsItSays(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator", "--space", "other")
	host := b.host(t)
	const spec = `{owners: [{kind: User, name: alice}], namespaces: {quota: 2, labels: {example.com/team: oil}, annotations: {example.com/contact: oil},
  limitRanges: [{limits: [{type: Container, default: {cpu: 100m}}]}], networkPolicies: [{podSelector: {}, policyTypes: [Ingress]}]}}`
	host.apply(t, tenantObject("oil", spec))
	awaitTenant(t, host, "oil")
	c := &capsule{host: host, space: b.space(t, "oil")}
	c.can(t, alice, "create namespaces", "yes")
	c.can(t, alice, "create customresourcedefinitions", "yes") // SpaceAdmin
	c.can(t, alice, "get nodes", "no")
	as := strings.Fields(alice)
	c.space.kubectl(t, append(as, "create", "ns", "one")...)
	c.space.kubectl(t, append(as, "create", "ns", "two")...)
	if out, err := c.space.tryKubectl(t, "", append(as, "create", "ns", "three")...); err == nil || !strings.Contains(out, "quota") {
		t.Errorf("a third namespace: %s", out)
	}
	eventually(t, func() error {
		out := c.space.kubectl(t, "get", "ns", "one", "-o", `jsonpath={.metadata.labels.example\.com/team} {.metadata.annotations.example\.com/contact}`)
		return expect("the namespace", out, "oil oil")
	})
	for _, kind := range []string{"limitrange", "networkpolicy"} {
		name := ""
		eventually(t, func() error {
			name = c.space.kubectl(t, append(as, "get", kind, "-n", "one", "-o", "jsonpath={.items[*].metadata.name}")...)
			if name == "" {
				return fmt.Errorf("there is no %s", kind)
			}
			return nil
		})
		if out, err := c.space.tryKubectl(t, "", append(as, "delete", kind, name, "-n", "one")...); err == nil {
			t.Errorf("an owner deletes what the tenant's admin has set: %s", out)
		}
		if out, err := c.space.tryKubectl(t, "", "delete", kind, name, "-n", "one"); err == nil {
			t.Errorf("an admin of the space deletes what the tenant's admin has set: %s", out)
		}
	}
	if out, err := c.space.tryKubectl(t, "", append(as, "label", "ns", "one", "example.com/team=other", "--overwrite")...); err == nil {
		t.Errorf("an owner changes the tenant's label: %s", out)
	}

	host.kubectl(t, "patch", "tenant", "oil", "--type=merge", "-p", `{"spec":{"cordoned":true}}`)
	eventually(t, func() error {
		return expect("the state", host.kubectl(t, "get", "tenant", "oil", "-o", "jsonpath={.status.state}"), "Cordoned")
	})
	c.can(t, alice, "create configmaps -n one", "no")
	if out, err := c.space.tryKubectl(t, "", append(as, "create", "cm", "a", "-n", "one")...); err == nil || !strings.Contains(out, "cordoned") {
		t.Errorf("a cordoned tenant creates: %s", out)
	}
	c.space.kubectl(t, append(as, "get", "cm", "-n", "one")...)
	c.space.kubectl(t, append(as, "delete", "ns", "two")...)
	host.kubectl(t, "patch", "tenant", "oil", "--type=merge", "-p", `{"spec":{"cordoned":false}}`)
	c.can(t, alice, "create configmaps -n one", "yes")
}

// O1, O8: rights are taken away, and a tenant is cordoned, also while its space is paused or its spec is invalid in another field.
func TestRightsEndWhileASpaceIsPausedOrInvalid(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "other")
	host := b.host(t)
	const owners = `access: {owners: [{kind: User, name: alice}, {kind: User, name: bob}]}`
	applySpace(t, host, "paused", "{"+owners+"}")
	c := &capsule{host: host, space: b.space(t, "paused")}
	c.can(t, "--as alice", "create namespaces", "yes")
	host.kubectl(t, "patch", "space", "paused", "--type=merge", "-p", `{"spec":{"paused":true,"access":{"owners":[{"kind":"User","name":"bob"}]}}}`)
	c.can(t, "--as alice", "create namespaces", "no")
	c.can(t, "--as bob", "create namespaces", "yes")
	host.kubectl(t, "patch", "space", "paused", "--type=merge", "-p", `{"spec":{"paused":false,"limits":{"wathces":"3"},"access":{"cordoned":true}}}`)
	awaitReady(t, host, "paused", "InvalidSpec", "wathces")
	c.can(t, "--as bob", "create namespaces", "no")
}
