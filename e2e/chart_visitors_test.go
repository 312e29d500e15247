// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// visitTime is how long a user of another tenant may keep a connection without a grant.
const visitTime = 12 * time.Second

// execAndForwardGrants let bob of another tenant run kubectl exec by one grant, and kubectl port-forward by another.
const execAndForwardGrants = `
apiVersion: access.berth.dev/v1alpha1
kind: TenantAccess
metadata: {name: enter}
spec:
  subjects: [{tenant: TENANT, users: [bob]}]
  rules:
  - {apiGroups: [""], resources: [pods], verbs: [get], namespaces: [default]}
  - {apiGroups: [""], resources: [pods/exec], verbs: [get, create], namespaces: [default]}
---
apiVersion: access.berth.dev/v1alpha1
kind: TenantAccess
metadata: {name: forward}
spec:
  subjects: [{tenant: TENANT, users: [bob]}]
  rules:
  - {apiGroups: [""], resources: [pods], verbs: [get], namespaces: [default]}
  - {apiGroups: [""], resources: [pods/portforward], verbs: [get, create], namespaces: [default]}
`

// Z5: bob, of another tenant, enters a pod and reaches its ports by two grants. His connections end with the grant that they are by: one
// is deleted, and one expires.
func checkVisitor(t *testing.T, space *cluster, bobs, pod string) {
	t.Helper()
	bob := inSpace(t, space, "of-bob", fleet(2))
	refused := func() {
		t.Helper()
		for _, args := range [][]string{{"exec", pod, "--", "cat", "/etc/hostname"}, {"port-forward", pod, ":8080"}} {
			if out, err := bob.tryKubectl(t, "", args...); err == nil || !strings.Contains(out, "gives you no access") {
				t.Errorf("without a grant, kubectl %v: %v: %s", args, err, out)
			}
		}
	}
	refused()
	space.apply(t, strings.ReplaceAll(execAndForwardGrants, "TENANT", bobs))
	eventually(t, func() error {
		_, err := bob.CoreV1().Pods("default").Get(t.Context(), pod, metav1.GetOptions{})
		return err
	})
	var shells []*entered
	var ports []*forwarding
	for _, websockets := range []string{"true", "false"} {
		t.Setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
		t.Setenv("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
		shells = append(shells, enter(t, bob, pod))
		ports = append(ports, forward(t, bob, pod, ":8080"))
	}
	serve := func() {
		t.Helper()
		for _, port := range ports {
			if got := port.reads(t, 0); !strings.HasPrefix(got, pod+" serves ") {
				t.Errorf("port-forward reads %q", got)
			}
		}
	}
	serve()
	for _, shell := range shells {
		shell.goesOn(t)
	}

	space.kubectl(t, "delete", "tenantaccess", "enter")
	for _, shell := range shells {
		shell.endsWithin(t, visitTime)
	}
	if out, err := bob.tryKubectl(t, "", "exec", pod, "--", "cat", "/etc/hostname"); err == nil || !strings.Contains(out, "pods/exec") || !strings.Contains(out, "berth:tenant:"+bobs+":bob") {
		t.Errorf("without the grant for it, kubectl exec: %v: %s", err, out)
	}
	serve()

	expiry := time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)
	space.kubectl(t, "patch", "tenantaccess", "forward", "--type=merge", "--patch", fmt.Sprintf(`{"spec": {"expirationTime": %q}}`, expiry))
	began := time.Now()
	for _, port := range ports {
		select {
		case <-port.done:
			t.Logf("kubectl port-forward ended after %s: %s", time.Since(began).Round(time.Millisecond), port.stderr.String())
		case <-time.After(visitTime):
			t.Errorf("kubectl port-forward goes on after %s", visitTime)
		}
	}
	refused()
}
