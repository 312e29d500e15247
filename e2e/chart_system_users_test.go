// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tenantsClients are the values about the credentials of users: bob is of a tenant, and the others are of the tenant system.
const (
	tenantsClients     = "clients.secretName=clients,clients.tokensKey=tokens.csv"
	lineOfOlga         = "of-olga,olga,u2,crew\n"
	tenantsSystemUsers = "clients.systemUsers={olga,rita},clients.systemGroups={crew}"
)

// createClients creates the Secret of tenantsClients.
func createClients(t *testing.T, host *cluster, bobs string) {
	t.Helper()
	tokens := "of-bob,bob,u1,crew,," + bobs + "\nof-rita,rita,u3\nof-sam,sam,u4,crew\n" + lineOfOlga
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "clients"}, Data: map[string][]byte{"tokens.csv": []byte(tokens)}}
	must(host.CoreV1().Secrets(tenantsRelease).Create(t.Context(), secret, metav1.CreateOptions{}))(t)
}

// crewRights are what users in the group crew may do on the host.
const crewRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: berth-tenants-crew}
rules:
- {apiGroups: [""], resources: [nodes, pods], verbs: [get, list]}
- {apiGroups: [""], resources: [pods/exec, pods/portforward], verbs: [get, create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: berth-tenants-crew}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: berth-tenants-crew}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: crew}]
`

// U1 to U3, Z2, Z3: users of the tenant system use a real host with the rights that its RBAC gives them, and enter a
// container there. It returns what they run in it.
func checkSystemUsers(t *testing.T, host, space *cluster, namespace, pod string) (shells []*entered) {
	t.Helper()
	host.apply(t, crewRights)
	t.Cleanup(func() {
		_, _ = host.runKubectl(context.WithoutCancel(t.Context()), "", "delete", "clusterrole/berth-tenants-crew", "clusterrolebinding/berth-tenants-crew")
	})
	olga := inSpace(t, space, "of-olga", "system")
	if got, want := olga.kubectl(t, "get", "nodes", "-o", "name"), host.kubectl(t, "get", "nodes", "-o", "name"); got != want {
		t.Errorf("olga gets the nodes\n%swant\n%s", got, want)
	}
	at := []string{"--namespace", namespace, pod}
	if got, want := olga.kubectl(t, append([]string{"get", "pod", "-o", "jsonpath={.metadata.uid}"}, at...)...), host.kubectl(t, append([]string{"get", "pod", "-o", "jsonpath={.metadata.uid}"}, at...)...); got != want {
		t.Errorf("olga gets a pod with the UID %s, want %s", got, want)
	}
	for _, websockets := range []string{"true", "false"} {
		t.Setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
		t.Setenv("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
		shells = append(shells, enter(t, olga, at...))
		if got := forward(t, olga, append(at, ":8080")...).reads(t, 0); !strings.Contains(got, " serves ") {
			t.Errorf("olga's port-forward with WebSocket=%s reads %q", websockets, got)
		}
	}
	if out, err := olga.tryKubectl(t, "", append([]string{"delete", "pod", "--wait=false"}, at...)...); err == nil || !strings.Contains(out, `User "olga" cannot delete resource "pods"`) {
		t.Errorf("what the host doesn't allow olga: %v: %s", err, out)
	}

	command := append(append([]string{"exec"}, at...), "--", "cat", "/etc/hostname")
	rita, bob := inSpace(t, space, "of-rita", "system"), inSpace(t, space, "of-bob", "system")
	for _, refused := range []struct {
		who     string
		user    *cluster
		args    []string
		message string
	}{
		{"a user without rights", rita, []string{"get", "nodes"}, `(Forbidden): nodes is forbidden: User "rita" cannot list resource "nodes" in API group "" at the cluster scope`},
		{"a user without rights", rita, command, `User "rita" cannot get resource "pods"`},
		{"a user whom Berth may not impersonate", inSpace(t, space, "of-sam", "system"), []string{"get", "nodes"}, `clients.systemUsers`},
		{"a user of a tenant", bob, []string{"get", "nodes"}, "is not one of that tenant, and gives you no access"},
		{"a user of a tenant", bob, command, "is not one of that tenant, and gives you no access"},
	} {
		if out, err := refused.user.tryKubectl(t, "", refused.args...); err == nil || !strings.Contains(out, refused.message) {
			t.Errorf("%s, kubectl %v: %v: %s; want %s", refused.who, refused.args, err, out, refused.message)
		}
	}
	for who, user := range map[string]*cluster{"a user without rights": rita, "a user of a tenant": bob} {
		if _, err := user.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", who, err)
		}
	}

	for _, shell := range shells {
		shell.goesOn(t)
	}
	return shells
}

// removeOlga removes the credential of a system user.
func removeOlga(t *testing.T, host *cluster) {
	t.Helper()
	clients := must(host.CoreV1().Secrets(tenantsRelease).Get(t.Context(), "clients", metav1.GetOptions{}))(t)
	clients.Data["tokens.csv"] = bytes.TrimSuffix(clients.Data["tokens.csv"], []byte(lineOfOlga))
	must(host.CoreV1().Secrets(tenantsRelease).Update(t.Context(), clients, metav1.UpdateOptions{}))(t)
	host.kubectl(t, "annotate", "--namespace", tenantsRelease, "pod", "berth-0", "round=two") // so that its kubelet updates its files at once
}

// M4: Berth's account may impersonate exactly the given users and groups, and that of the operator nobody.
func checkImpersonation(t *testing.T, host *cluster, may ...string) {
	t.Helper()
	berth := must(host.AppsV1().StatefulSets(tenantsRelease).Get(t.Context(), "berth", metav1.GetOptions{}))(t).Spec.Template.Spec.ServiceAccountName
	operator := must(host.AppsV1().Deployments(tenantsRelease).Get(t.Context(), "berth-operator", metav1.GetOptions{}))(t).Spec.Template.Spec.ServiceAccountName
	allowed := map[string]bool{}
	for _, one := range may {
		allowed[berth+" "+one] = true
	}
	for _, account := range []string{berth, operator} {
		for _, one := range []string{"users/", "users/olga", "users/rita", "users/sam", "users/crew", "users/kubernetes-admin", "groups/", "groups/crew", "groups/olga", "groups/system:masters", "groups/system:authenticated", "serviceaccounts/", "serviceaccounts/" + berth} {
			resource, name, _ := strings.Cut(one, "/")
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               fmt.Sprintf("system:serviceaccount:%s:%s", tenantsRelease, account),
				Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + tenantsRelease, "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "impersonate", Resource: resource, Name: name},
			}}
			if resource == "serviceaccounts" {
				review.Spec.ResourceAttributes.Namespace = tenantsRelease
			}
			answer := must(host.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{}))(t).Status
			if answer.Allowed != allowed[account+" "+one] {
				t.Errorf("%s may impersonate %s: %v, want %v (%s)", account, one, answer.Allowed, allowed[account+" "+one], answer.Reason)
			}
		}
	}
}
