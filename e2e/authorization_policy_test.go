// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const policyLine = `{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {%s}}`

// policyFile is a file with policies. Write replaces it, as kubectl and the kubelet do.
type policyFile string

func (f policyFile) write(t *testing.T, specs ...string) {
	t.Helper()
	text := ""
	for _, spec := range specs {
		text += fmt.Sprintf(policyLine, spec) + "\n"
	}
	next := string(f) + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, string(f)); err != nil {
		t.Fatal(err)
	}
}

// Z1, Z2, Z4: policies of the admin of the platform let users into spaces of other tenants, and give system users rights there. They are
// read again when they change, and end what is running.
func TestPoliciesOfTheAdminLetUsersIntoOtherSpaces(t *testing.T) {
	t.Parallel()
	file := policyFile(filepath.Join(t.TempDir(), "policy.jsonl"))
	const (
		bobs  = `"tenant": "lunar", "user": "bob", "space": "%s", "namespace": "*", "resource": "pods", "readonly": true`
		opses = `"group": "operators", "space": "*", "namespace": "*", "resource": "configmaps"`
		hosts = `"tenant": "lunar", "user": "eve", "namespace": "*", "resource": "pods"`
	)
	file.write(t, fmt.Sprintf(bobs, "solar"), fmt.Sprintf(bobs, "mars"), opses, hosts)
	b := start(t, "--operator", "--token-auth-file", accessFiles(t), "--authorization-policy-file", string(file))
	host := b.host(t)
	for _, tenant := range []string{"solar", "lunar", "mars"} {
		host.apply(t, tenantObject(tenant, "{}"))
		awaitTenant(t, host, tenant)
	}
	patchSpace(t, host, "mars", "spec: {isolation: Dedicated}")
	solar := b.space(t, "solar")
	for _, name := range []string{"solar", "mars"} {
		own := b.space(t, name)
		eventually(t, func() error { return listPods(t, own, "default") })
		bob, eve, ops := inSpace(t, own, "of-bob", name), inSpace(t, own, "of-eve", name), inSpace(t, own, "of-ops", name)
		eventually(t, func() error { return listPods(t, bob, "") })
		if _, err := bob.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: bob reads ConfigMaps: %v", name, err)
		}
		if err := bob.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: bob deletes pods: %v", name, err)
		}
		if err := refusedAtGateway(listPods(t, eve, "")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		eventually(t, func() error {
			_, err := ops.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			return err
		})
		if err := listPods(t, ops, ""); !apierrors.IsForbidden(err) {
			t.Errorf("%s: an operator reads pods: %v", name, err)
		}
		if out := ops.kubectl(t, "auth", "can-i", "--list"); !strings.Contains(out, "configmaps") {
			t.Errorf("%s: kubectl auth can-i --list: %s", name, out)
		}
		// The tenant can't make itself an operator.
		if _, err := own.as(t, "ops", "operators").CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: who acts as an operator: %v", name, err)
		}
	}
	// The system space is the API of the embedded host.
	eve := inSpace(t, solar, "of-eve", "system")
	if err := listPods(t, eve, ""); err != nil {
		t.Errorf("eve on the host: %v", err)
	}
	if _, err := eve.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("eve reads Secrets of the host: %v", err)
	}
	if err := refusedAtGateway(listPods(t, inSpace(t, solar, "of-bob", "system"), "")); err != nil {
		t.Errorf("bob on the host: %v", err)
	}
	// A file that is wrong changes nothing, and one that is right ends what it no longer allows.
	file.write(t, opses, `"user": "x"`)
	eventually(t, func() error {
		if !strings.Contains(b.log(t), "line 2: spec.resource: it is empty") {
			return fmt.Errorf("the log doesn't name the line")
		}
		return nil
	})
	for _, name := range []string{"solar", "mars"} {
		if err := listPods(t, inSpace(t, solar, "of-bob", name), ""); err != nil {
			t.Errorf("%s, with a wrong file: %v", name, err)
		}
	}
	first := inSpace(t, solar, "of-bob", "mars")
	endsAtOnce(t, inSpace(t, solar, "of-bob", "solar"), "", "removed from the file", func() {
		endsAtOnce(t, first, "", "removed from the file", func() { file.write(t, opses) })
	})
	for _, name := range []string{"solar", "mars"} {
		eventually(t, func() error { return refusedAtGateway(listPods(t, inSpace(t, solar, "of-bob", name), "")) })
	}
	// A wrong file is an error at the start.
	file.write(t, opses, `"user": "x"`)
	b.end()
	b.launch(t, "--operator", "--authorization-policy-file", string(file))
	if code := b.exitCode(t); code == 0 || !strings.Contains(b.output(), "authorization-policy-file") || !strings.Contains(b.output(), "line 2") {
		t.Errorf("it starts with a wrong file: %d\n%s", code, b.output())
	}
}
