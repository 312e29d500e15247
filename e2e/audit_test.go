// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// auditCollector is a webhook that gets events.
type auditCollector struct {
	*httptest.Server

	mu  sync.Mutex
	got []auditv1.Event
}

func newCollector(t *testing.T) *auditCollector {
	t.Helper()
	c := &auditCollector{}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var list auditv1.EventList
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.got = append(c.got, list.Items...)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *auditCollector) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw})
}

func (c *auditCollector) events() []auditv1.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

// audited returns the events of a tenant's log.
func audited(t *testing.T, dir, tenant string) (events []auditv1.Event) {
	t.Helper()
	text := must(os.ReadFile(filepath.Join(dir, tenant+".log")))(t)
	for line := range strings.Lines(string(text)) {
		var event auditv1.Event
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		events = append(events, event)
	}
	return events
}

// X7: what users do is recorded with the tenant, the space, and who they are, whomever they impersonate; that somebody asks for another
// tenant's space, too, for his own tenant. The webhook of a tenant gets the events of that tenant alone, once the Tenant names it.
func TestWhatTenantsDoIsRecorded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	users, logs := filepath.Join(dir, "tokens.csv"), filepath.Join(dir, "audit")
	if err := os.WriteFile(users, []byte("of-bob,bob,u1,,solar\nof-eve,eve,u4,,lunar\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hook, all := newCollector(t), newCollector(t)
	policy, kubeconfig := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "webhook.kubeconfig")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: None, resources: [{resources: [configmaps]}]}, {level: Request}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["all"], config.Contexts["all"], config.CurrentContext = &clientcmdapi.Cluster{Server: all.URL, CertificateAuthorityData: all.ca()}, &clientcmdapi.Context{Cluster: "all"}, "all"
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	b := start(t, "--operator", "--token-auth-file", users, "--audit-log-dir", logs, "--audit-policy-file", policy, "--audit-webhook-config-file", kubeconfig)
	host := b.host(t)
	for _, tenant := range []string{"solar", "lunar"} {
		host.apply(t, tenantObject(tenant, "{}"))
		awaitTenant(t, host, tenant)
	}
	patchSpace(t, host, "lunar", "spec: {isolation: Dedicated}")
	solar, lunar := b.space(t, "solar"), b.space(t, "lunar")
	for _, space := range []*cluster{solar, lunar} {
		space.kubectl(t, "create", "clusterrolebinding", "all", "--clusterrole=cluster-admin", "--user=bob", "--user=eve")
	}
	as := func(token, other string) *kubernetes.Clientset {
		config := withToken(solar.config, token)
		config.Host, config.Impersonate = solar.endpoint(), rest.ImpersonationConfig{UserName: other}
		return must(kubernetes.NewForConfig(config))(t)
	}
	eventually(t, func() error {
		_, err := as("of-eve", "").CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		return err
	})
	if _, err := as("of-bob", "carol").CoreV1().Secrets("default").Get(t.Context(), "x", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("as carol: %v", err)
	}
	if err := mayList(t, atEndpoint(t, solar, withToken(solar.config, "of-bob")), "lunar"); !apierrors.IsForbidden(err) {
		t.Errorf("another tenant's: %v", err)
	}
	find := func(tenant string, is func(*auditv1.Event) bool) *auditv1.Event {
		t.Helper()
		events := audited(t, logs, tenant)
		i := slices.IndexFunc(events, func(e auditv1.Event) bool { return is(&e) })
		if i < 0 {
			t.Fatalf("not among the events of %s:\n%s", tenant, must(os.ReadFile(filepath.Join(logs, tenant+".log")))(t))
		}
		return &events[i]
	}
	e := find("solar", func(e *auditv1.Event) bool { return e.ImpersonatedUser != nil })
	if e.User.Username != "bob" || e.ImpersonatedUser.Username != "carol" || e.Annotations["berth.dev/tenant"] != "solar" || e.Annotations["berth.dev/user-tenant"] != "solar" ||
		e.Annotations["authorization.k8s.io/decision"] != "forbid" || e.ResponseStatus.Code != http.StatusForbidden || e.ObjectRef.Resource != "secrets" {
		t.Errorf("an impersonation is recorded as %+v", e)
	}
	e = find("solar", func(e *auditv1.Event) bool {
		return e.ObjectRef != nil && e.ObjectRef.Resource == "namespaces" && e.User.Username == "bob"
	})
	if e.ResponseStatus.Code != http.StatusForbidden || e.Annotations["berth.dev/refused-space"] != "lunar" || e.Annotations["authorization.k8s.io/decision"] != "forbid" {
		t.Errorf("what bob asks of another tenant is recorded as %+v", e)
	}
	// A dedicated space is in a process of its own; the gateway records.
	if e = find("lunar", func(e *auditv1.Event) bool { return e.User.Username == "eve" && e.Verb == "list" }); e.Annotations["berth.dev/space"] != "lunar" {
		t.Errorf("recorded %+v", e)
	}
	// Clients with credentials of the space itself.
	find("solar", func(e *auditv1.Event) bool {
		return e.Verb == "create" && e.ObjectRef.Resource == "clusterrolebindings" && slices.Contains(e.User.Groups, "berth:admins")
	})
	for _, e := range audited(t, logs, "lunar") {
		if e.User.Username == "bob" {
			t.Errorf("the log of lunar names bob: %+v", e)
		}
	}

	eventually(t, func() error {
		tenants := map[string]bool{}
		for _, e := range all.events() {
			tenants[e.Annotations["berth.dev/tenant"]] = true
			if e.RequestObject != nil || e.ObjectRef != nil && e.ObjectRef.Resource == "configmaps" && e.Annotations["berth.dev/tenant"] == "lunar" {
				t.Errorf("the policy is not kept: %+v", e)
			}
		}
		if !tenants["solar"] || !tenants["lunar"] {
			return fmt.Errorf("the webhook of the platform has got events of %v", tenants)
		}
		return nil
	})

	ca := base64.StdEncoding.EncodeToString(hook.ca())
	host.kubectl(t, "patch", "tenant", "solar", "--type", "merge", "--patch", fmt.Sprintf(
		`{"spec": {"audit": {"policy": {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata", "verbs": ["delete"]}]}, "webhook": {"url": %q, "caBundle": %q}}}}`, hook.URL, ca))
	eventually(t, func() error {
		for _, token := range []string{"of-bob", "of-eve"} {
			if err := as(token, "").CoreV1().ConfigMaps("default").Delete(t.Context(), "missing", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
				return err
			}
		}
		if len(hook.events()) == 0 {
			return fmt.Errorf("the webhook has got nothing")
		}
		return nil
	})
	for _, e := range hook.events() {
		if e.User.Username != "bob" || e.Verb != "delete" {
			t.Errorf("the webhook got %+v", e)
		}
	}
	if out, err := host.tryKubectl(t, "", "patch", "tenant", "solar", "--type", "merge", "--patch", `{"spec": {"audit": {"webhook": {"url": "http://x.example"}}}}`); err == nil || !strings.Contains(out+err.Error(), "spec.audit.webhook.url") {
		t.Errorf("a URL without TLS: %v: %s", err, out)
	}
}
