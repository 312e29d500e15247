// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const podReaders = `
apiVersion: berth.dev/v1alpha1
kind: SystemRole
metadata: {name: pod-readers}
spec:
  subjects: [{kind: Group, name: operators}]
  scopeType: SCOPE
  rules: [{apiGroups: [""], resources: [pods], verbs: ["*"]}]
`

// Z2, Z6: users of the tenant system have the rights of their roles in the spaces of the role's scope, and there only; the rights end at
// once with the role.
func TestSystemRolesHoldInTheirScope(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator", "--token-auth-file", accessFiles(t))
	host := b.host(t)
	for _, tenant := range []string{"solar", "lunar", "mars"} {
		host.apply(t, tenantObject(tenant, "{}"))
		awaitTenant(t, host, tenant)
	}
	patchSpace(t, host, "mars", "spec: {isolation: Dedicated}")
	solar := b.space(t, "solar")
	spaces := []string{"system", "solar", "lunar", "mars"}
	ops := map[string]*cluster{}
	for _, name := range spaces {
		ops[name] = inSpace(t, solar, "of-ops", name)
		eventually(t, func() error { // system users reach every space, and have no rights by that
			if err := listPods(t, ops[name], ""); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "is not one of that tenant") {
				return unexpected(err)
			}
			return nil
		})
	}
	for scope, where := range map[string][]string{"Cluster": spaces, "System": {"system"}, "Tenants\n  tenants: [solar, mars, nobody]": {"solar", "mars"}} {
		t.Log(scope)
		host.apply(t, strings.Replace(podReaders, "SCOPE", scope, 1))
		holds(t, ops, spaces, where)
		if where[len(where)-1] == "mars" {
			tryRole(t, b, ops["solar"])
		}
		for _, name := range where {
			running := ops[name]
			endsAtOnce(t, running, "default", name, func() { host.kubectl(t, "delete", "systemrole", "pod-readers", "--ignore-not-found") })
			if name != where[len(where)-1] {
				host.apply(t, strings.Replace(podReaders, "SCOPE", scope, 1))
				holds(t, ops, spaces, where)
			}
		}
		holds(t, ops, spaces, nil)
	}
	for change, want := range map[string]string{"Tenants": "tenants is set if scopeType is Tenants", "System\n  tenants: [solar]": "tenants is set if scopeType is Tenants", "All": "Unsupported value"} {
		if out, err := host.tryKubectl(t, strings.Replace(podReaders, "SCOPE", change, 1), "apply", "-f", "-"); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %s; want %s", change, out, want)
		}
	}
}

type unexpectedError struct{ error }

func unexpected(err error) error { return unexpectedError{err} }

func (u unexpectedError) Error() string {
	if u.error == nil {
		return "unexpected success"
	}
	return "unexpected: " + u.error.Error()
}

// holds checks in which spaces a role for pods holds.
func holds(t *testing.T, ops map[string]*cluster, spaces, where []string) {
	t.Helper()
	in := map[string]bool{}
	for _, name := range where {
		in[name] = true
	}
	for _, name := range spaces {
		eventually(t, func() error {
			if err := listPods(t, ops[name], ""); in[name] && err != nil || !in[name] && !apierrors.IsForbidden(err) {
				return unexpected(err)
			}
			return nil
		})
	}
}

// tryRole checks that a role gives what it says, and to nobody else.
func tryRole(t *testing.T, b *berth, ops *cluster) {
	t.Helper()
	own := b.space(t, "solar")
	if out := ops.kubectl(t, "auth", "can-i", "--list"); !strings.Contains(out, "pods") {
		t.Errorf("kubectl auth can-i --list: %s", out)
	}
	if out, err := ops.tryKubectl(t, "", "get", "secrets", "-A"); err == nil || !strings.Contains(out, "forbidden") {
		t.Errorf("what the role doesn't give: %s", out)
	}
	for who, client := range map[string]*cluster{"who acts as the user": own.as(t, "ops", "operators"), "who acts as the group": own.as(t, "x", "operators")} {
		if err := listPods(t, client, ""); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", who, err)
		}
	}
	if err := refusedAtGateway(listPods(t, inSpace(t, own, "of-eve", "solar"), "")); err != nil {
		t.Errorf("a user of another tenant: %v", err)
	}
}
