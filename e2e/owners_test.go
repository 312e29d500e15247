// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The documents of Capsule's page about permissions, with Berth's group and names.
const (
	capsuleOwners = `
apiVersion: berth.dev/v1alpha1
kind: TenantOwner
metadata:
  labels:
    team: devops
  name: devops
spec:
  kind: Group
  name: "oidc:org:devops:a"
---
apiVersion: berth.dev/v1alpha1
kind: TenantOwner
metadata:
  labels:
    customer: x
  name: controller
spec:
  kind: ServiceAccount
  name: "system:serviceaccount:berth:controller"
  clusterRoles:
    - "mega-admin"
    - "controller"
`
	capsuleConfiguration = `
apiVersion: berth.dev/v1alpha1
kind: BerthConfiguration
metadata:
  name: berth
spec:
  ownerScope:
    groups: [berth.dev, solar-users, "oidc:org:devops:a", "system:serviceaccounts:tenant-system"]
    users: ["system:serviceaccounts:other-system:robot"]
  administrators:
    - {kind: Group, name: platform-team}
  serviceAccountPromotion: Enabled
`
	capsuleRoles = `
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: tenant-resources, labels: {berth.dev/publish: "true"}}
rules:
  - apiGroups: ["capsule.clastix.io"]
    resources: ["tenantresources"]
    verbs: ["get", "list", "watch", "create", "update", "patch", "delete"]
---
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: gateway-resources, labels: {berth.dev/publish: "true", rbac.authorization.k8s.io/aggregate-to-admin: "true"}}
rules:
  - apiGroups: ["gateway.networking.k8s.io"]
    resources: ["gateways"]
    verbs: ["*"]
---
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: prometheus-servicemonitors-viewer, labels: {berth.dev/publish: "true"}}
rules:
  - apiGroups: ["monitoring.coreos.com"]
    resources: ["servicemonitors"]
    verbs: ["get", "list", "watch"]
`
)

// capsule is Capsule's page about permissions, step by step, in the tenant solar.
type capsule struct{ host, space *cluster }

// solar applies the Tenant solar with the fields of its spec, in YAML with an indentation of two.
func (c *capsule) solar(t *testing.T, spec string) {
	t.Helper()
	c.host.apply(t, "apiVersion: berth.dev/v1alpha1\nkind: Tenant\nmetadata:\n  labels: {kubernetes.io/metadata.name: solar}\n  name: solar\n"+
		"spec:\n  ownerProfile: NamespaceAdmin\n"+spec)
	c.host.kubectl(t, "wait", "--for=condition=Ready", "tenant/solar", "--timeout=180s")
}

// define makes the space know a kind.
func (c *capsule) define(t *testing.T, group, kind string) {
	t.Helper()
	plural := strings.ToLower(kind) + "s"
	c.space.apply(t, fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[1]s.%[2]s,
  annotations: {api-approved.kubernetes.io: unapproved}}, spec: {group: %[2]s, scope: Namespaced, names: {kind: %[3]s, plural: %[1]s},
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`, plural, group, kind))
	c.space.awaitCRD(t, plural+"."+group)
}

// can asks `kubectl auth can-i` until the answer is as wanted.
func (c *capsule) can(t *testing.T, as, what, want string) {
	t.Helper()
	args := slices.Concat(strings.Fields(as), []string{"auth", "can-i"}, strings.Fields(what))
	eventually(t, func() error {
		out, _ := c.space.tryKubectl(t, "", args...) // kubectl fails if the answer is no
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if answer := strings.Fields(lines[len(lines)-1] + " -")[0]; answer != want {
			return fmt.Errorf("kubectl %s: %q, want %q", strings.Join(args, " "), out, want)
		}
		return nil
	})
}

// bindings waits until the role bindings of a namespace are these: their names and roles, as kubectl prints them.
func (c *capsule) bindings(t *testing.T, namespace string, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, func() error {
		out := c.space.kubectl(t, "get", "rolebinding", "-n", namespace, "--no-headers", "-o", "custom-columns=N:.metadata.name,K:.roleRef.kind,R:.roleRef.name")
		var got []string
		for line := range strings.Lines(out) {
			if fields := strings.Fields(line); len(fields) == 3 {
				got = append(got, fields[0]+" "+fields[1]+"/"+fields[2])
			}
		}
		slices.Sort(got)
		return expect("the role bindings", strings.Join(got, "\n"), strings.Join(want, "\n"))
	})
}

// owners waits until the status of solar has these owners: kind, name, and roles.
func (c *capsule) owners(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, func() error {
		got := c.host.kubectl(t, "get", "tenant", "solar", "-o",
			`jsonpath={range .status.owners[*]}{.kind}{" "}{.name}{" "}{.clusterRoles}{"\n"}{end}`)
		return expect("status.owners", strings.TrimSpace(got), strings.Join(want, "\n"))
	})
}

const (
	alice     = "--as alice --as-group berth.dev"
	bothRoles = `["admin","berth-namespace-deleter"]`
)

// T1, O1 to O8: Capsule's page about permissions (seed CP), command by command, with its answers.
func TestOwnersAreAsCapsuleDocumentsThem(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator", "--space", "other")
	c := &capsule{host: b.host(t)}
	awaitObject(t, c.host, "berthconfiguration/berth")
	c.host.apply(t, capsuleConfiguration)
	c.host.apply(t, capsuleRoles)
	c.solar(t, "  owners:\n  - name: alice\n    kind: User\n")
	eventually(t, func() error {
		_, _, code := runBerth(t, "kubeconfig", "solar", "--data-dir", b.dir)
		return expect("the exit code of berth kubeconfig", code, 0)
	})
	c.space = b.space(t, "solar")
	// kubectl asks about resources that the API server knows.
	c.define(t, "capsule.clastix.io", "TenantResource")
	c.define(t, "gateway.networking.k8s.io", "Gateway")
	c.define(t, "monitoring.coreos.com", "ServiceMonitor")

	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"users", c.users}, {"groups", c.groups}, {"service accounts", c.serviceAccounts}, {"promotion", c.promotion},
		{"tenant owners", c.tenantOwners}, {"owner roles", c.ownerRoles}, {"aggregated roles", c.aggregation},
		{"additional role bindings", c.additional}, {"administrators", c.administrators}, {"scope", c.scope},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

func (c *capsule) users(t *testing.T) {
	eventually(t, func() error {
		lines := strings.Split(c.host.kubectl(t, "get", "tnt", "solar"), "\n")
		return expect("the columns", strings.Join(strings.Fields(lines[0]), " "), "NAME STATE SPACES NAMESPACE QUOTA NAMESPACE COUNT OWNERS PARENT AGE")
	})
	eventually(t, func() error {
		return expect("the tenant", c.host.kubectl(t, "get", "tenant", "solar", "-o", "jsonpath={.status.state} {.status.size}"), "Active 0")
	})
	c.can(t, alice, "create namespaces", "yes")
	c.space.kubectl(t, append(strings.Fields(alice), "create", "namespace", "solar-production")...)
	c.space.kubectl(t, append(strings.Fields(alice), "create", "namespace", "solar-system")...)
	c.can(t, alice, "delete ns -n solar-production", "yes")
	for _, what := range []string{"get namespaces", "get nodes", "get persistentvolumes", "get tenants"} {
		c.can(t, alice, what, "no")
	}
	eventually(t, func() error {
		return expect("the namespaces of the tenant",
			c.host.kubectl(t, "get", "tenant", "solar", "-o", "jsonpath={.status.namespaces} {.status.size} {.status.state}"),
			`["solar-production","solar-system"] 2 Active`)
	})
	if out, err := c.space.tryKubectl(t, "", "--as", "mallory", "--as-group", "berth.dev", "create", "namespace", "mallory"); err == nil || !strings.Contains(out, "orbidden") {
		t.Errorf("somebody who owns nothing creates a namespace: %s", out)
	}
}

func (c *capsule) groups(t *testing.T) {
	c.can(t, "--as bob --as-group berth.dev", "create namespaces", "no")
	c.solar(t, "  owners:\n  - name: alice\n    kind: User\n  - name: bob\n    kind: User\n")
	c.can(t, "--as bob --as-group berth.dev", "create namespaces", "yes")
	c.solar(t, "  owners:\n  - name: solar-users\n    kind: Group\n")
	c.can(t, "--as bob --as-group berth.dev", "create namespaces", "no")
	c.can(t, "--as bob --as-group solar-users", "create namespaces", "yes")
	c.can(t, "--as bob --as-group solar-users", "create configmaps -n solar-production", "yes")
	c.can(t, alice, "create namespaces", "no")
}

func (c *capsule) serviceAccounts(t *testing.T) {
	c.solar(t, "  owners:\n  - name: system:serviceaccount:tenant-system:robot\n    kind: ServiceAccount\n  - name: alice\n    kind: User\n")
	c.can(t, "--as system:serviceaccount:tenant-system:robot --as-group berth.dev", "create namespaces", "yes")
	// As it authenticates, by its own groups.
	c.can(t, "--as system:serviceaccount:tenant-system:robot --as-group system:serviceaccounts --as-group system:serviceaccounts:tenant-system", "create namespaces", "yes")
	c.can(t, "--as system:serviceaccount:tenant-system:other --as-group system:serviceaccounts:tenant-system", "create namespaces", "no")
}

func (c *capsule) promotion(t *testing.T) {
	c.space.kubectl(t, append(strings.Fields(alice), "create", "ns", "green-test")...)
	robot := "--as system:serviceaccount:green-test:gitops-reconcile"
	c.can(t, alice, "create serviceaccounts -n green-test", "yes")
	c.space.kubectl(t, append(strings.Fields(alice), "create", "sa", "gitops-reconcile", "-n", "green-test")...)
	c.can(t, robot, "create namespaces", "no")
	// A user with the same rights in the namespace who isn't an owner can't.
	c.space.kubectl(t, "create", "rolebinding", "eve", "--clusterrole=admin", "--user=eve", "-n", "green-test")
	c.can(t, "--as eve", "update serviceaccounts -n green-test", "yes")
	if out, err := c.space.tryKubectl(t, "", "label", "sa", "gitops-reconcile", "-n", "green-test", "owner.berth.dev/promote=true", "--as", "eve"); err == nil || !strings.Contains(out, "owner") {
		t.Errorf("somebody who owns nothing promotes: %s", out)
	}
	c.space.kubectl(t, append([]string{"label", "sa", "gitops-reconcile", "-n", "green-test", "owner.berth.dev/promote=true"}, strings.Fields(alice)...)...)
	c.can(t, robot, "create namespaces", "yes")
	c.space.kubectl(t, append([]string{"create", "ns", "green-valkey"}, strings.Fields(robot)...)...)
	c.space.kubectl(t, append([]string{"label", "sa", "gitops-reconcile", "-n", "green-test", "owner.berth.dev/promote-"}, strings.Fields(alice)...)...)
	c.can(t, robot, "create namespaces", "no")
}

func (c *capsule) tenantOwners(t *testing.T) {
	c.host.apply(t, capsuleOwners)
	c.solar(t, "  owners:\n  - {kind: User, name: alice}\n  permissions:\n    matchOwners:\n    - matchLabels:\n        team: devops\n")
	c.owners(t, "Group oidc:org:devops:a "+bothRoles, "User alice "+bothRoles)
	c.solar(t, `  owners:
  - clusterRoles:
    - admin
    - berth-namespace-deleter
    kind: User
    name: alice
  - clusterRoles:
    - admin
    - berth-namespace-deleter
    kind: ServiceAccount
    name: system:serviceaccount:berth:controller
  permissions:
    matchOwners:
    - matchLabels:
        team: devops
    - matchLabels:
        customer: x
`)
	c.owners(t, "Group oidc:org:devops:a "+bothRoles,
		`ServiceAccount system:serviceaccount:berth:controller ["admin","berth-namespace-deleter","mega-admin","controller"]`,
		"User alice "+bothRoles)
	c.can(t, "--as dora --as-group oidc:org:devops:a", "create namespaces", "yes")
	c.host.kubectl(t, "delete", "tenantowner", "devops", "controller")
	c.owners(t, `ServiceAccount system:serviceaccount:berth:controller `+bothRoles, "User alice "+bothRoles)
	c.can(t, "--as dora --as-group oidc:org:devops:a", "create namespaces", "no")
}

func (c *capsule) ownerRoles(t *testing.T) {
	c.solar(t, `  owners:
  - clusterRoles: [admin, berth-namespace-deleter]
    kind: User
    name: alice
    labels: {example.com/sample: "true"}
    annotations: {example.com/sample: "true"}
`)
	both := []string{"berth-solar-0-admin ClusterRole/admin", "berth-solar-1-berth-namespace-deleter ClusterRole/berth-namespace-deleter"}
	c.bindings(t, "solar-production", both...)
	eventually(t, func() error {
		out := c.space.kubectl(t, "get", "rolebinding", "berth-solar-0-admin", "-n", "solar-production", "-o",
			`jsonpath={.metadata.labels.berth\.dev/tenant} {.metadata.labels.example\.com/sample} {.metadata.annotations.example\.com/sample} {.subjects}`)
		return expect("the role binding", out, `solar true true [{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"alice"}]`)
	})
	c.space.kubectl(t, append(strings.Fields(alice), "delete", "rolebinding", "--all", "-n", "solar-production")...)
	c.bindings(t, "solar-production", both...)

	c.solar(t, "  owners:\n  - {name: alice, kind: User}\n  - {name: joe, kind: User, clusterRoles: [view]}\n")
	c.bindings(t, "solar-production", append(both, "berth-solar-2-view ClusterRole/view")...)
	joe := "--as joe --as-group berth.dev"
	c.can(t, joe, "get pods -n solar-production", "yes")
	c.can(t, joe, "delete pods -n solar-production", "no")
	c.can(t, joe, "create namespaces", "yes") // as every owner

	c.solar(t, "  owners:\n  - {name: alice, kind: User}\n  - {name: joe, kind: User, clusterRoles: [view, tenant-resources]}\n")
	c.bindings(t, "solar-production", append(both, "berth-solar-2-view ClusterRole/view", "berth-solar-3-tenant-resources ClusterRole/tenant-resources")...)
	c.can(t, joe, "create tenantresources.capsule.clastix.io -n solar-production", "yes")
}

func (c *capsule) aggregation(t *testing.T) {
	c.can(t, alice, "create gateways.gateway.networking.k8s.io -n solar-production", "yes")
	c.host.kubectl(t, "label", "clusterrole", "gateway-resources", "berth.dev/publish-")
	c.can(t, alice, "create gateways.gateway.networking.k8s.io -n solar-production", "no")
}

func (c *capsule) additional(t *testing.T) {
	c.solar(t, `  owners:
  - {name: alice, kind: User}
  additionalRoleBindings:
  - clusterRoleName: 'prometheus-servicemonitors-viewer'
    subjects:
    - apiGroup: rbac.authorization.k8s.io
      kind: User
      name: joe
    labels:
      example.com/sample: "true"
    annotations:
      example.com/sample: "true"
`)
	c.bindings(t, "solar-production", "berth-solar-0-admin ClusterRole/admin", "berth-solar-1-berth-namespace-deleter ClusterRole/berth-namespace-deleter",
		"berth-solar-prometheus-servicemonitors-viewer ClusterRole/prometheus-servicemonitors-viewer")
	joe := "--as joe --as-group berth.dev"
	c.can(t, joe, "list servicemonitors.monitoring.coreos.com -n solar-production", "yes")
	c.can(t, joe, "get pods -n solar-production", "no")
	c.can(t, joe, "create namespaces", "no") // the subjects are not owners
}

func (c *capsule) administrators(t *testing.T) {
	anna := "--as anna --as-group platform-team"
	for _, what := range []string{"create namespaces", "get namespaces", "delete ns -n solar-production", "create clusterroles", "delete pods -n kube-system"} {
		c.can(t, anna, what, "yes")
	}
}

func (c *capsule) scope(t *testing.T) {
	c.can(t, "--as alice", "create namespaces", "no") // she isn't in the group
	c.solar(t, "  owners:\n  - {name: strangers, kind: Group}\n")
	c.can(t, "--as bob --as-group strangers", "create namespaces", "no")
	c.can(t, "--as bob --as-group strangers --as-group berth.dev", "create namespaces", "yes")
}
