// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// berthsAccount has what `berth up` needs of a host, and may impersonate no users or groups.
const berthsAccount = `
{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: default, name: berth-beside}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: berth-beside}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch, create, update, patch, delete, deletecollection, bind, escalate]}
- {nonResourceURLs: ["*"], verbs: [get]}
- {apiGroups: [""], resources: [serviceaccounts], verbs: [impersonate]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: berth-beside}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: berth-beside}
subjects: [{kind: ServiceAccount, namespace: default, name: berth-beside}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: berth-beside-impersonator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: berth-beside-impersonator}
subjects: [{kind: ServiceAccount, namespace: default, name: berth-beside}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: host-viewers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: host-viewers}]
`

// impersonator is the role as the chart makes it.
const impersonator = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: berth-beside-impersonator}
rules:
- {apiGroups: [""], resources: [users], resourceNames: [olga], verbs: [impersonate]}
- {apiGroups: [""], resources: [groups], resourceNames: [GROUPS], verbs: [impersonate]}
`

// U1 to U4, Z2, Z3: users of the tenant system reach the API of a real host by all forms of URLs, with the rights that the host's RBAC gives
// them, if the host lets Berth impersonate them. Nobody else does.
func TestSystemUsersReachARealHost(t *testing.T) {
	t.Parallel()
	host := sharedBerth(t).host(t)
	host.apply(t, berthsAccount)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const others = "of-rita,rita,u2,\"host-viewers,system:masters\"\nof-eve,eve,u3,host-viewers,,outsiders\n"
	tokens := file("tokens.csv", "of-olga,olga,u1,\"host-viewers,crew\"\n"+others)
	token := must(host.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "berth-beside", &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(t).Status.Token
	b := start(t, "--host-kubeconfig", inSpace(t, host, token, "system").kubeconfig, "--platform-name", "beside", "--space", "beside", "--token-auth-file", tokens,
		"--authorization-policy-file", file("policy.jsonl", `{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"tenant": "outsiders", "user": "*", "namespace": "*", "resource": "*"}}`))
	host.apply(t, "{apiVersion: berth.dev/v1alpha1, kind: QuotaLedger, metadata: {name: outsiders}, spec: {limit: {pods: 20}}}") // no operator runs
	applySpace(t, host, "outsiders", "{platformName: beside, tenantName: outsiders}")
	of := b.space(t, "beside")
	client := func(token string) *cluster { return atEndpoint(t, of, withToken(of.config, token)) }
	olga, rita, eve := client("of-olga"), client("of-rita"), client("of-eve")

	// Berth has no right to impersonate users by default. It needs one for the user, and for each group.
	for _, groups := range []string{"nobody", "nobody, host-viewers", "crew, nobody"} {
		host.apply(t, strings.Replace(impersonator, "GROUPS", groups, 1))
		if err := listPods(t, olga, ""); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `impersonate the user "olga"`) || !strings.Contains(err.Error(), "clients.systemUsers") {
			t.Errorf("with the right to impersonate the groups [%s]: %v", groups, err)
		}
	}
	host.apply(t, strings.Replace(impersonator, "GROUPS", "host-viewers, crew", 1))
	eventually(t, func() error { return listPods(t, olga, "") })
	if err := listPods(t, rita, ""); !apierrors.IsForbidden(err) {
		t.Errorf("a user whom Berth may not impersonate: %v", err)
	}

	pod := must(host.CoreV1().Pods("default").Create(t.Context(), newPod("of-the-host"), metav1.CreateOptions{}))(t)
	for form, c := range map[string]*cluster{"the short path": olga, "the full path": olga.fullPaths(t, "system"), "the path of the space": inSpace(t, of, "of-olga", "system")} {
		if got := must(c.CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{}))(t); got.UID != pod.UID {
			t.Errorf("%s leads to a pod with the UID %s, want %s", form, got.UID, pod.UID)
		}
		if err := c.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "olga" cannot delete`) {
			t.Errorf("by %s, what the host doesn't allow: %v", form, err)
		}
	}
	if out := string(must(olga.CoreV1().RESTClient().Get().AbsPath("/api/v1/tenants/system/namespaces/default/pods/of-the-host").DoRaw(t.Context()))(t)); !strings.Contains(out, `"tenant":"system"`) {
		t.Errorf("the full path shows no tenant: %s", out)
	}
	forgedOnHost(t, olga)
	for _, path := range []string{"/spaces/system/api/v1/pods", "/api/v1/tenants/system/pods"} {
		get := func(c *cluster) error {
			return c.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Impersonate-User", "olga").Do(t.Context()).Error()
		}
		if err := refusedAtGateway(get(eve)); err != nil {
			t.Errorf("%s, a user of a tenant: %v", path, err)
		}
		for who, token := range map[string]string{"nobody": "", "Berth's own account": token} {
			if err := get(client(token)); !apierrors.IsUnauthorized(err) {
				t.Errorf("%s, %s: %v", path, who, err)
			}
		}
	}

	// A watch ends with the line of its user.
	w := must(olga.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=of-the-host"}))(t)
	defer w.Stop()
	if event := <-w.ResultChan(); event.Type != watch.Added {
		t.Fatalf("the watch begins with %v", event)
	}
	file("tokens.csv", others)
	for after := time.After(2 * testTimeout); ; {
		select {
		case _, open := <-w.ResultChan():
			if open {
				continue // of the pod
			}
		case <-after:
			t.Error("the watch goes on without its user")
		}
		break
	}
	if err := listPods(t, olga, ""); !apierrors.IsUnauthorized(err) {
		t.Errorf("without a line in the file: %v", err)
	}
}

// forgedOnHost checks that the host knows olga by what the gateway has proved, whatever she sends.
func forgedOnHost(t *testing.T, olga *cluster) {
	t.Helper()
	review := &authenticationv1.SelfSubjectReview{}
	err := olga.AuthenticationV1().RESTClient().Post().Resource("selfsubjectreviews").Body(review).SetHeader("X-Remote-User", "admin").
		SetHeader("X-Remote-Group", "system:masters").Do(t.Context()).Into(review)
	who := review.Status.UserInfo
	slices.Sort(who.Groups)
	if err != nil || who.Username != "olga" || !slices.Equal(who.Groups, []string{"crew", "host-viewers", "system:authenticated"}) || who.UID != "" || len(who.Extra) > 0 {
		t.Errorf("the host takes olga for %v (%v)", who, err)
	}
	config := rest.CopyConfig(olga.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "admin", UID: "1", Groups: []string{"system:masters"}, Extra: map[string][]string{"a": {"b"}}}
	if _, err := must(kubernetes.NewForConfig(config))(t).CoreV1().Pods(corev1.NamespaceDefault).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "can't impersonate others") {
		t.Errorf("as an admin: %v", err)
	}
}
