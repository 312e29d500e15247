// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// accessFiles writes the token file of the tests about access: a user for each NAME of a tenant, with the token of-NAME.
func accessFiles(t *testing.T) (tokens string) {
	t.Helper()
	tokens = filepath.Join(t.TempDir(), "tokens.csv")
	text := "of-bob,bob,u1,crew,,lunar\nof-eve,eve,u2,,lunar\nof-alice,alice,u3,,solar\nof-root,root,u4,system:masters\nof-ops,ops,u5,operators\nof-bob2,bob,u6,,solar\n"
	if err := os.WriteFile(tokens, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return tokens
}

// inSpace returns the API of a space for a client of the platform, with a kubeconfig.
func inSpace(t *testing.T, of *cluster, token, space string) *cluster {
	t.Helper()
	config := withToken(of.config, token)
	config.Host = of.endpoint() + "/spaces/" + space
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData, TLSServerName: config.ServerName}
	file.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	file.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	file.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatal(err)
	}
	return &cluster{Interface: must(kubernetes.NewForConfig(config))(t), dynamic: must(dynamic.NewForConfig(config))(t), config: config, kubeconfig: path}
}

func listPods(t *testing.T, c *cluster, namespace string) error {
	t.Helper()
	_, err := c.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	return err
}

// refusedAtGateway is the error of a client to whom a space gives nothing.
func refusedAtGateway(err error) error {
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "is not one of that tenant, and gives you no access") {
		return fmt.Errorf("want to be refused at the gateway, got %w", errors.Join(err, errors.New("-")))
	}
	return nil
}

const auditors = `
apiVersion: access.berth.dev/v1alpha1
kind: TenantAccess
metadata: {name: auditors}
spec:
  subjects: [{tenant: lunar, users: [bob]}]
  rules: [{apiGroups: [""], resources: [pods, pods/log], verbs: [get, list, watch], namespaces: [web]}]
`

// Z1, Z5: a space's admin gives a user of another tenant access, which ends at once with the object, for what is running as well. It is
// the same for a space with a process of its own.
func TestAdminsGiveUsersOfOtherTenantsAccess(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator", "--token-auth-file", accessFiles(t))
	host := b.host(t)
	for _, tenant := range []string{"solar", "lunar", "mars"} {
		host.apply(t, tenantObject(tenant, "{}"))
		awaitTenant(t, host, tenant)
	}
	patchSpace(t, host, "mars", "spec: {isolation: Dedicated}")
	for _, name := range []string{"solar", "mars"} {
		t.Run(name, func(t *testing.T) { givesAccess(t, b, name) })
	}
}

func givesAccess(t *testing.T, b *berth, name string) {
	own := b.space(t, name)
	eventually(t, func() error { return listPods(t, own, "default") })
	own.namespace(t, "web")
	bob, eve := inSpace(t, own, "of-bob", name), inSpace(t, own, "of-eve", name)
	// Everybody whom the space authenticates may read; no role is for visitors.
	own.kubectl(t, "create", "clusterrolebinding", "everybody", "--clusterrole=view", "--group=system:authenticated", "--user=bob", "--user=berth:tenant:lunar:bob", "--group=crew")
	if err := refusedAtGateway(listPods(t, bob, "web")); err != nil {
		t.Fatal(err)
	}
	if out, err := bob.tryKubectl(t, "", "get", "pods", "-n", "web"); err == nil || !strings.Contains(out, "gives you no access") {
		t.Errorf("kubectl doesn't show why bob is refused: %v: %s", err, out)
	}
	out := own.apply(t, auditors, "--server-side")
	if !strings.Contains(out, "serverside-applied") {
		t.Errorf("server-side apply: %s", out)
	}
	eventually(t, func() error { return listPods(t, bob, "web") })
	for what, err := range map[string]error{
		"another namespace": listPods(t, bob, "default"), "all namespaces": listPods(t, bob, ""),
		"secrets": func() error {
			_, err := bob.CoreV1().Secrets("web").List(t.Context(), metav1.ListOptions{})
			return err
		}(),
		"deleting": bob.CoreV1().Pods("web").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}),
	} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "berth:tenant:lunar:bob") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := refusedAtGateway(listPods(t, eve, "web")); err != nil {
		t.Errorf("eve of the same tenant: %v", err)
	}
	if err := listPods(t, inSpace(t, own, "of-bob", name).fullPaths(t, name), "web"); err != nil {
		t.Errorf("by the full path: %v", err)
	}
	who := must(bob.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(t).Status.UserInfo
	if who.Username != "berth:tenant:lunar:bob" || !slices.Equal(who.Groups, []string{"berth:tenant:lunar", "berth:tenant:lunar:crew"}) || !slices.Equal(who.Extra["berth.dev/tenant"], []string{"lunar"}) {
		t.Errorf("bob is %+v", who)
	}
	// kubectl works, and tells the truth.
	if out := bob.kubectl(t, "get", "pods", "-n", "web"); !strings.Contains(out, "No resources found") {
		t.Errorf("kubectl get pods: %s", out)
	}
	if out := bob.kubectl(t, "auth", "can-i", "--list", "-n", "web"); !strings.Contains(out, "pods/log") || strings.Contains(out, "secrets") {
		t.Errorf("kubectl auth can-i --list: %s", out)
	}
	if out := bob.kubectl(t, "auth", "can-i", "--list", "-n", "default"); strings.Contains(out, "pods") {
		t.Errorf("kubectl auth can-i --list in another namespace: %s", out)
	}
	if out, err := bob.tryKubectl(t, "", "auth", "can-i", "list", "secrets", "-n", "web"); err == nil || !strings.HasPrefix(out, "no") {
		t.Errorf("kubectl auth can-i list secrets: %s", out)
	}
	if out := own.kubectl(t, "auth", "can-i", "list", "pods", "-n", "web", "--as", "berth:tenant:lunar:bob"); !strings.HasPrefix(out, "yes") {
		t.Errorf("the admin asks for bob: %s", out)
	}
	servesTenantAccess(t, own)
	for ending, end := range map[string]func(){
		"deleted": func() { own.kubectl(t, "delete", "tenantaccess", "auditors") },
		"changed": func() { own.apply(t, strings.Replace(auditors, "[bob]", "[carol]", 1)) },
		"expired": func() {
			own.kubectl(t, "patch", "tenantaccess", "auditors", "--type=merge", "-p", `{"spec": {"expirationTime": "`+time.Now().Add(3*time.Second).UTC().Format(time.RFC3339)+`"}}`)
		},
	} {
		own.apply(t, auditors)
		own.kubectl(t, "patch", "tenantaccess", "auditors", "--type=merge", "-p", `{"spec": {"expirationTime": null}}`)
		eventually(t, func() error { return listPods(t, bob, "web") })
		endsAtOnce(t, bob, "web", ending, end)
		eventually(t, func() error { return refusedAtGateway(listPods(t, bob, "web")) })
	}
}

// endsAtOnce checks that a watch ends with the access, and not only at the next look at the identity.
func endsAtOnce(t *testing.T, c *cluster, namespace, ending string, end func()) {
	t.Helper()
	running := must(c.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{}))(t)
	defer running.Stop()
	end()
	began, limit := time.Now(), time.After(12*time.Second)
	for {
		select {
		case e, open := <-running.ResultChan():
			if open && e.Type != watch.Error {
				continue
			}
			t.Logf("%s: the watch ended after %s", ending, time.Since(began).Round(time.Millisecond))
		case <-limit:
			t.Fatalf("%s: the watch goes on", ending)
		}
		break
	}
}

// servesTenantAccess checks that kubectl can work with TenantAccess objects as with those of Kubernetes.
func servesTenantAccess(t *testing.T, own *cluster) {
	t.Helper()
	if out := own.kubectl(t, "explain", "tenantaccess.spec.rules.namespaces"); !strings.Contains(out, "limits the rule to these namespaces") {
		t.Errorf("kubectl explain: %s", out)
	}
	if out := own.kubectl(t, "get", "tenantaccesses"); !strings.Contains(out, "TENANTS") || !strings.Contains(out, "lunar") || !strings.Contains(out, "never") {
		t.Errorf("kubectl get: %s", out)
	}
	for change, want := range map[string][]string{
		"verbs: [impersonate]":        {"spec.rules[0].verbs[0]", "impersonate", "can't act as users"},
		"verbs: []":                   {"spec.rules[0].verbs", "Required"},
		"verbs: [get], resource: [x]": {"spec.rules[0].resource: field not declared"},
	} {
		out, err := own.tryKubectl(t, strings.Replace(auditors, "verbs: [get, list, watch]", change, 1), "apply", "--server-side", "--force-conflicts", "-f", "-")
		for _, part := range want {
			if err == nil || !strings.Contains(out, part) {
				t.Errorf("%s: %s; want %s", change, out, part)
			}
		}
	}
	for old, change := range map[string][2]string{
		"tenant: lunar":    {"tenant: Lunar!", "spec.subjects[0].tenant"},
		"namespaces: [we":  {"namespaces: [W", "spec.rules[0].namespaces[0]"},
		"spec:":            {"spec:\n  expirationTime: '2001-01-01T00:00:00Z'", "spec.expirationTime"},
		"{tenant: lunar, ": {"{tenant: system, ", "give them rights with a RoleBinding"},
	} {
		manifest := strings.Replace(strings.Replace(auditors, old, change[0], 1), "name: auditors", "name: bad", 1)
		if out, err := own.tryKubectl(t, manifest, "create", "-f", "-"); err == nil || !strings.Contains(out, change[1]) {
			t.Errorf("%s: %s; want %s", change[0], out, change[1])
		}
	}
}

// Z5, T8: a space that sleeps wakes for those whom it gives access, also after its process was killed, and for no others.
func TestOnlyGrantsWakeASpace(t *testing.T) {
	t.Parallel()
	args := []string{"--operator", "--token-auth-file", accessFiles(t)}
	b := start(t, args...)
	host := b.host(t)
	for _, tenant := range []string{"solar", "lunar", "mars"} {
		host.apply(t, tenantObject(tenant, "{}"))
		awaitTenant(t, host, tenant)
	}
	patchSpace(t, host, "mars", "spec: {isolation: Dedicated}")
	for _, name := range []string{"solar", "mars"} {
		own := b.space(t, name)
		eventually(t, func() error { return listPods(t, own, "default") })
		own.namespace(t, "web")
		own.apply(t, auditors)
		own.apply(t, strings.NewReplacer("name: auditors", "name: short", "[bob]", "[eve]").Replace(auditors))
		own.kubectl(t, "delete", "tenantaccess", "short")
	}
	for _, how := range []string{"by itself", "by a crash"} {
		if how == "by a crash" {
			b.crash(t)
			b.up(t, args...)
		}
		for _, name := range []string{"solar", "mars"} {
			own := b.space(t, name)
			bob, eve := inSpace(t, own, "of-bob", name), inSpace(t, own, "of-eve", name)
			eventually(t, func() error { return listPods(t, own, "web") })
			b.command(t, "sleep", name)
			b.awaitState(t, name, "Asleep")
			for range 3 {
				if err := refusedAtGateway(listPods(t, eve, "web")); err != nil {
					t.Errorf("%s, %s: %v", name, how, err)
				}
			}
			if state, _ := b.stateOf(t, name); state != "Asleep" {
				t.Errorf("%s, %s: a stranger woke it: %s", name, how, state)
			}
			if err := listPods(t, bob, "web"); err != nil {
				t.Errorf("%s, %s: the grant doesn't wake it: %v", name, how, err)
			}
		}
	}
}

// Z5: nobody gives, or has, more than the admin of the space means to give.
func TestHostileUsesOfTenantAccess(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator", "--token-auth-file", accessFiles(t))
	host := b.host(t)
	for _, tenant := range []string{"solar", "lunar"} {
		host.apply(t, tenantObject(tenant, "{}"))
		awaitTenant(t, host, tenant)
	}
	own, other := b.space(t, "solar"), b.space(t, "lunar")
	own.namespace(t, "web")
	// Who may write grants gives only what he has, and nothing by wildcards.
	own.kubectl(t, "create", "clusterrole", "granter", "--verb=*", "--resource=tenantaccesses.access.berth.dev")
	own.kubectl(t, "create", "clusterrolebinding", "granter", "--clusterrole=granter", "--user=alice")
	own.kubectl(t, "create", "rolebinding", "alice", "--clusterrole=view", "--user=alice", "-n", "web")
	alice := inSpace(t, own, "of-alice", "solar")
	eventually(t, func() error {
		out, err := alice.tryKubectl(t, auditors, "apply", "-f", "-")
		if err != nil {
			return errors.New(out)
		}
		return nil
	})
	for old, more := range map[string]string{
		", namespaces: [web]": "", "[web]": "[web, default]", "[pods, pods/log]": "['*']", "[get, list, watch]": "['*']", `[""]`: "['*']", "pods/log": "pods/exec",
		"[get, list": "[create",
	} {
		if out, err := alice.tryKubectl(t, strings.Replace(auditors, old, more, 1), "apply", "-f", "-"); err == nil || !strings.Contains(out, "you can't give the right") {
			t.Errorf("alice gives %s: %s", more, out)
		}
	}
	// A visitor with all rights writes no grants, and is nobody else.
	own.apply(t, `
apiVersion: access.berth.dev/v1alpha1
kind: TenantAccess
metadata: {name: all}
spec:
  subjects: [{tenant: lunar, users: [bob]}]
  rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
`)
	bob := inSpace(t, own, "of-bob", "solar")
	eventually(t, func() error { return listPods(t, bob, "") })
	if out, err := bob.tryKubectl(t, strings.NewReplacer("name: auditors", "name: mine").Replace(auditors), "create", "-f", "-"); err == nil || !strings.Contains(out, "users of other tenants can't give") {
		t.Errorf("bob gives himself more: %s", out)
	}
	if err := listPods(t, bob.as(t, "alice"), "web"); !apierrors.IsForbidden(err) {
		t.Errorf("bob acts as alice: %v", err)
	}
	if err := listPods(t, bob.as(t, "x", "system:masters"), "web"); !apierrors.IsForbidden(err) {
		t.Errorf("bob acts as an admin: %v", err)
	}
	// A lasting binding doesn't outlast the grant.
	must(bob.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bobs"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "berth:tenant:lunar:bob"}},
	}, metav1.CreateOptions{}))(t)
	endsAtOnce(t, bob, "default", "deleted", func() { own.kubectl(t, "delete", "tenantaccess", "all") })
	if err := listPods(t, bob, "default"); !apierrors.IsForbidden(err) {
		t.Errorf("bob's own binding gives him: %v", err)
	}
	if err := listPods(t, bob, "web"); err != nil {
		t.Errorf("the other grant: %v", err)
	}
	// An admin of another space has no visitor's identity here: not by impersonation, a certificate of that space, or a header.
	own.apply(t, strings.Replace(auditors, "[bob]", "[carol]", 1))
	eve := inSpace(t, own, "of-eve", "solar")
	forged := base64.StdEncoding.EncodeToString([]byte(`{"Name": "berth:tenant:lunar:carol", "Tenant": "lunar", "Visitor": true, "Proof": "TokenFile"}`))
	for how, client := range map[string]*cluster{"impersonation": other.as(t, "berth:tenant:lunar:carol"), "impersonation by eve": eve.as(t, "berth:tenant:lunar:carol")} {
		config := rest.CopyConfig(client.config)
		config.Host = own.endpoint() + "/spaces/solar"
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return header{next, "X-Berth-Identity", forged} })
		if err := listPods(t, &cluster{Interface: must(kubernetes.NewForConfig(config))(t), config: config}, "web"); err == nil {
			t.Errorf("%s: it works", how)
		}
	}
	// The number is bounded, and those that are there can be changed.
	for i := range 64 {
		out, err := own.tryKubectl(t, strings.Replace(auditors, "name: auditors", fmt.Sprintf("name: n%d", i), 1), "create", "-f", "-")
		if err != nil {
			if i < 62 || !strings.Contains(out, "and may have 64") {
				t.Errorf("object %d: %s", i, out)
			}
			if out, err := own.tryKubectl(t, strings.Replace(auditors, "name: auditors", "name: applied", 1), "apply", "--server-side", "-f", "-"); err == nil || !strings.Contains(out, "and may have 64") {
				t.Errorf("server-side apply: %s", out)
			}
			own.apply(t, auditors)
			break
		}
		if i == 63 {
			t.Error("there is no limit")
		}
	}
	if out, err := own.tryKubectl(t, strings.Replace(auditors, "name: auditors", "name: auditors, annotations: {a: "+strings.Repeat("x", 17<<10)+"}", 1), "replace", "-f", "-"); err == nil || !strings.Contains(out, "16384 bytes") {
		t.Errorf("a large object: %.300s", out)
	}
	crd := strings.NewReplacer("example.com", "access.berth.dev").Replace("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: as.example.com}\nspec:\n  group: example.com\n  scope: Cluster\n  names: {plural: as, kind: A}\n  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]\n")
	if out, err := own.tryKubectl(t, crd, "create", "-f", "-"); err == nil || !strings.Contains(out, "use another group") {
		t.Errorf("custom resources in the group: %s", out)
	}
}

// header sets a header of each request.
type header struct {
	http.RoundTripper
	name, value string
}

func (h header) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(h.name, h.value)
	return h.RoundTripper.RoundTrip(r)
}
