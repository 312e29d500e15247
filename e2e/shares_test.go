// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

const sharingTenants = `
{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: acme}, spec: {owners: [{kind: User, name: alice}]}}
---
{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: acme-dev}, spec: {parent: acme}}
---
{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: acme-dev-eu}, spec: {parent: acme-dev}}
---
{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: acme-secret}, spec: {parent: acme, private: true}}
---
{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: acme-closed}, spec: {parent: acme, ownerProfile: NamespaceAdmin}}
---
{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: other}}
`

// family is a tree of tenants with another one beside it.
type family struct {
	*berth
	host  *cluster
	space map[string]*cluster
}

func startFamily(t *testing.T, args ...string) *family {
	t.Helper()
	f := &family{berth: start(t, append([]string{"--operator"}, args...)...), space: map[string]*cluster{}}
	f.host = f.berth.host(t)
	f.host.apply(t, sharingTenants)
	names := []string{"acme", "acme-dev", "acme-dev-eu", "acme-secret", "acme-closed", "other"}
	for _, name := range names {
		awaitObject(t, f.host, "space/"+name)
		awaitReady(t, f.host, name, "True")
		f.space[name] = f.berth.space(t, name)
		f.space[name].namespace(t, "web")
	}
	return f
}

// has waits until an object is in the spaces of these tenants, and looks whether it is in none of the others.
func (f *family) has(t *testing.T, object string, tenants ...string) {
	t.Helper()
	args := append(strings.Fields(object), "-o", "name")
	want := map[string]bool{"acme": true}
	for _, name := range tenants {
		want[name] = true
		f.space[name].published(t, strings.ReplaceAll(strings.Join(strings.Fields(object)[:2], "/"), "rolebinding/", "rolebinding.rbac.authorization.k8s.io/"), args...)
	}
	for name, space := range f.space {
		if !want[name] {
			space.published(t, "gone", args...)
		}
	}
}

// H8, H5: what an owner shares reaches the tenants below, and no others: neither private ones nor other trees. A RoleBinding gives a
// third party rights there, until it is no longer shared. Users of these spaces can't change it.
func TestTenantsShareObjectsWithThoseBelow(t *testing.T) {
	t.Parallel()
	f := startFamily(t)
	acme, alice := f.space["acme"], []string{"--as", "alice", "--as-group", "berth.dev"}
	by := func(who []string, args ...string) (string, error) {
		return acme.tryKubectl(t, "", append(args, who...)...)
	}
	acme.apply(t, `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: web, name: settings}, data: {color: blue}}`)

	t.Run("only owners share, and only what can be shared", func(t *testing.T) {
		acme.kubectl(t, "create", "rolebinding", "dora", "--clusterrole=edit", "--user=dora", "-n", "web")
		refused := func(words string, who []string, args ...string) {
			t.Helper()
			if out, err := by(who, args...); err == nil || !strings.Contains(out, words) {
				t.Errorf("kubectl %s: %v: %s, want a refusal that says %s", strings.Join(args, " "), err, out, words)
			}
		}
		refused("only owners of the tenant", []string{"--as", "dora"}, "label", "configmap", "settings", "-n", "web", "berth.dev/share=children")
		refused(`"everybody" is neither "children"`, alice, "label", "configmap", "settings", "-n", "web", "berth.dev/share=everybody")
		refused("on an object of namespaces", alice, "label", "namespace", "web", "berth.dev/share=children")
		refused("on an object of serviceaccounts", alice, "label", "serviceaccount", "default", "-n", "web", "berth.dev/share=children")
		refused("kube-system belongs to each space", alice, "label", "configmap", "extension-apiserver-authentication", "-n", "kube-system", "berth.dev/share=children")
		acme.kubectl(t, "create", "rolebinding", "all", "--clusterrole=view", "--group=system:authenticated", "-n", "web")
		refused("subjects[0].name", alice, "label", "rolebinding", "all", "-n", "web", "berth.dev/share=descendants")
		refused("each space has its own ClusterRole admin", alice, "label", "clusterrole", "admin", "berth.dev/share=descendants")
	})

	t.Run("with children", func(t *testing.T) {
		acme.kubectl(t, append([]string{"label", "configmap", "settings", "-n", "web", "berth.dev/share=children"}, alice...)...)
		f.has(t, "configmap settings -n web", "acme-dev", "acme-closed")
		acme.kubectl(t, "patch", "configmap", "settings", "-n", "web", "-p", `{"data":{"color":"red"}}`)
		f.space["acme-dev"].published(t, "red", "configmap", "settings", "-n", "web", "-o", "jsonpath={.data.color}")
		if out, err := by([]string{"--as", "dora"}, "patch", "configmap", "settings", "-n", "web", "-p", `{"data":{"color":"gray"}}`); err == nil || !strings.Contains(out, "is shared") {
			t.Errorf("a user who owns nothing changes what is shared: %v: %s", err, out)
		}
		if out, err := f.space["acme-dev"].tryKubectl(t, "", "delete", "configmap", "settings", "-n", "web"); err == nil || !strings.Contains(out, "a tenant above shares this object") {
			t.Errorf("the copy is deleted: %v: %s", err, out)
		}
	})

	t.Run("with descendants", func(t *testing.T) {
		acme.kubectl(t, "label", "configmap", "settings", "-n", "web", "berth.dev/share=descendants", "--overwrite")
		f.has(t, "configmap settings -n web", "acme-dev", "acme-dev-eu", "acme-closed")
	})

	t.Run("a binding delegates to a third party", func(t *testing.T) {
		canBob := func(tenant, what, want string) {
			t.Helper()
			eventually(t, func() error {
				out, _ := f.space[tenant].tryKubectl(t, "", append([]string{"auth", "can-i", "--as", "bob"}, strings.Fields(what)...)...)
				if !strings.HasSuffix(strings.TrimSpace(out), want) {
					return fmt.Errorf("bob may %s in %s: %s, want %s", what, tenant, out, want)
				}
				return nil
			})
		}
		acme.apply(t, `
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {namespace: web, name: auditors, labels: {berth.dev/share: descendants}},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: operators, labels: {berth.dev/share: descendants}}, rules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: operators, labels: {berth.dev/share: descendants}},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: operators}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]}
`)
		for _, tenant := range []string{"acme-dev", "acme-dev-eu", "acme-closed"} {
			canBob(tenant, "get pods -n web", "yes")
			canBob(tenant, "delete pods -n web", "no")
			canBob(tenant, "get pods -n default", "no")
		}
		f.has(t, "rolebinding auditors -n web", "acme-dev", "acme-dev-eu", "acme-closed")
		canBob("acme-dev-eu", "get nodes", "yes")
		canBob("acme-closed", "get nodes", "no") // its owners have no rights outside of namespaces, and can't get them from above
		f.space["acme-closed"].published(t, "gone", "clusterrole", "operators")
		acme.kubectl(t, append([]string{"label", "rolebinding", "auditors", "-n", "web", "berth.dev/share-"}, alice...)...)
		for _, tenant := range []string{"acme-dev", "acme-dev-eu", "acme-closed"} {
			canBob(tenant, "get pods -n web", "no")
		}
		canBob("acme", "get pods -n web", "yes")
	})

	t.Run("until the tenant becomes private", func(t *testing.T) {
		f.host.kubectl(t, "patch", "tenant", "acme-dev", "--type=merge", "-p", `{"spec":{"private":true}}`)
		f.has(t, "configmap settings -n web", "acme-closed")
		f.host.kubectl(t, "patch", "tenant", "acme-dev", "--type=merge", "-p", `{"spec":{"private":false}}`)
		f.has(t, "configmap settings -n web", "acme-dev", "acme-dev-eu", "acme-closed")
	})

	t.Run("until the source is gone", func(t *testing.T) {
		acme.kubectl(t, "delete", "configmap", "settings", "-n", "web")
		f.has(t, "configmap settings -n web")
		eventually(t, func() error {
			return expect("the shared objects on the host", strings.TrimSpace(f.host.kubectl(t, "get", "sharedobjects", "-n", "berth-acme", "-o", "jsonpath={.items[*].spec.object.metadata.name}")), "operators operators")
		})
	})

	t.Run("from a process of its own, until the space is gone", func(t *testing.T) {
		f.host.apply(t, `{apiVersion: berth.dev/v1alpha1, kind: Space, metadata: {name: acme-two}, spec: {tenantName: acme, isolation: Dedicated}}`)
		awaitReady(t, f.host, "acme-two", "True")
		two := f.berth.space(t, "acme-two")
		two.apply(t, `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: second, labels: {berth.dev/share: children}}}`)
		f.has(t, "configmap second -n default", "acme-dev")
		f.host.kubectl(t, "delete", "space", "acme-two", "--timeout=180s")
		f.has(t, "configmap second -n default")
	})
}

// H8, S7: a space that is killed, or sleeps, shares what it has to; one that sleeps gets what is shared before it answers.
func TestSharedObjectsSurviveCrashesAndSleep(t *testing.T) {
	t.Parallel()
	f := startFamily(t, "--idle-after", "4s")
	acme := f.space["acme"]
	acme.apply(t, `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: web, name: one, labels: {berth.dev/share: descendants}}}`)
	f.has(t, "configmap one -n web", "acme-dev", "acme-dev-eu", "acme-closed")
	f.awaitState(t, "acme-dev-eu", "Asleep")
	acme.apply(t, `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: web, name: two, labels: {berth.dev/share: descendants}}}`)
	f.host.published(t, "share.00.acme", "space", "acme-dev-eu", "-o", "jsonpath={.spec.publications[-1:]}")
	eventually(t, func() error {
		return expect("the published objects", fmt.Sprint(len(strings.Fields(f.host.kubectl(t, "get", "publishedobjects", "-l", "berth.dev/shared-by=acme", "-o", "name")))), "2")
	})
	f.awaitState(t, "acme-dev-eu", "Asleep") // it wasn't woken for that
	f.space["acme-dev-eu"].kubectl(t, "get", "configmap", "two", "-n", "web")

	// Killed right after the answer: nothing may be lost, although nobody uses the space from then on.
	acme.kubectl(t, "label", "configmap", "one", "-n", "web", "berth.dev/share-")
	f.crash(t)
	f.up(t, "--operator", "--idle-after", "4s")
	f.host = f.berth.host(t)
	for name := range f.space {
		f.space[name] = f.berth.space(t, name)
	}
	f.has(t, "configmap one -n web")
	f.has(t, "configmap two -n web", "acme-dev", "acme-dev-eu", "acme-closed")
}
