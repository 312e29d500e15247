// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/berth-dev/berth/internal/testwebhook"
)

// keystone is OpenStack Keystone, with the webhook that Kubernetes has for it.
type keystone struct {
	url, admin string
	kubeconfig string // of the webhook
}

// startKeystone starts both. Tests that need them are skipped where Keystone isn't installed.
func startKeystone(t *testing.T) *keystone {
	t.Helper()
	if _, err := exec.LookPath("keystone-manage"); err != nil {
		t.Skip("OpenStack Keystone isn't installed: on Debian, install the package python3-keystone")
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../hack/keystone", "-o", filepath.Join(dir, "bin")+"/", "tool").CombinedOutput(); err != nil {
		t.Fatalf("build k8s-keystone-auth: %v\n%s", err, out)
	}
	k := &keystone{kubeconfig: filepath.Join(dir, "webhook.kubeconfig")}
	port := freePort(t)
	k.url = "http://127.0.0.1:" + port + "/v3"
	// On a busy machine, this takes minutes.
	if out, err := exec.CommandContext(t.Context(), "../hack/keystone/prepare", dir, port).CombinedOutput(); err != nil {
		t.Fatalf("prepare Keystone: %v\n%s", err, out)
	}
	background(t, "keystone-wsgi-public", "--host", "127.0.0.1", "--port", port, "--", "--config-file", filepath.Join(dir, "keystone.conf"))
	eventually(t, func() error {
		_, _, err := k.request(t.Context(), http.MethodGet, "", "")
		return err
	})
	eventually(t, func() (err error) {
		k.admin, err = k.token(t.Context(), "admin", "Default", "admin")
		return err
	})
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"webhook.crt": crt, "webhook.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	policy := filepath.Join(dir, "webhook-policy.json") // Keystone reads policy.json
	if err := os.WriteFile(policy, []byte(`[{"resource": {"verbs": ["create"], "resources": ["configmaps"], "version": "*", "namespace": "*"}, "match": [{"type": "role", "values": ["writer"]}]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	background(t, filepath.Join(dir, "bin", "k8s-keystone-auth"), "--listen", address, "--tls-cert-file", filepath.Join(dir, "webhook.crt"),
		"--tls-private-key-file", filepath.Join(dir, "webhook.key"), "--keystone-url", k.url, "--keystone-policy-file", policy)
	testwebhook.Write(t, k.kubeconfig, "https://"+address+"/webhook", crt)
	eventually(t, func() error {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	return k
}

// background runs a command until the test ends.
func background(t *testing.T, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, 5*time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			text := out.String()
			t.Logf("%s printed:\n%s", name, text[max(0, len(text)-3000):])
		}
	})
}

// token returns a token of a user of a domain for a project of it, with the password secret.
func (k *keystone) token(ctx context.Context, user, domain, project string) (string, error) {
	body := fmt.Sprintf(`{"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": %q, "domain": {"name": %q}, "password": "secret"}}},
		"scope": {"project": {"name": %q, "domain": {"name": %q}}}}}`, user, domain, project, domain)
	_, header, err := k.request(ctx, http.MethodPost, "/auth/tokens", body)
	return header.Get("X-Subject-Token"), err
}

// make makes an object, and returns its id.
func (k *keystone) make(t *testing.T, kind, spec string) string {
	t.Helper()
	answer, _, err := k.request(t.Context(), http.MethodPost, "/"+kind+"s", fmt.Sprintf(`{%q: %s}`, kind, spec))
	object := map[string]struct {
		ID string `json:"id"`
	}{}
	if err == nil {
		err = json.Unmarshal(answer, &object)
	}
	if err != nil || object[kind].ID == "" {
		t.Fatalf("make a %s of %s: %s, %v", kind, spec, answer, err)
	}
	return object[kind].ID
}

// request makes a request as the admin, with more headers: keys and values.
func (k *keystone) request(ctx context.Context, method, path, body string, more ...string) ([]byte, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, method, k.url+path, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Auth-Token", k.admin)
	for i := 0; i+1 < len(more); i += 2 {
		r.Header.Set(more[i], more[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
	}
	return answer, response.Header, err
}

// A4, A7: users of OpenStack Keystone reach the spaces of the tenant of their domain's name. Role assignments on projects become role
// bindings, or are what Keystone's webhook decides by, and a token that Keystone revokes is worthless.
func TestUsersOfKeystoneReachTheirTenant(t *testing.T) {
	t.Parallel()
	k := startKeystone(t)
	projects, users, roles := map[string]string{}, map[string]string{}, map[string]string{}
	for _, role := range []string{"editor", "writer"} {
		roles[role] = k.make(t, "role", fmt.Sprintf(`{"name": %q}`, role))
	}
	for domain, user := range map[string]string{"solar": "alice", "lunar": "eve", "system": "mallory"} {
		id := k.make(t, "domain", fmt.Sprintf(`{"name": %q}`, domain))
		projects[domain] = k.make(t, "project", fmt.Sprintf(`{"name": "app", "domain_id": %q}`, id))
		users[user] = k.make(t, "user", fmt.Sprintf(`{"name": %q, "domain_id": %q, "password": "secret"}`, user, id))
	}
	for _, a := range []struct{ domain, user, role string }{{"solar", "alice", "editor"}, {"lunar", "eve", "writer"}, {"system", "mallory", "writer"}} {
		if _, _, err := k.request(t.Context(), http.MethodPut, "/projects/"+projects[a.domain]+"/users/"+users[a.user]+"/roles/"+roles[a.role], ""); err != nil {
			t.Fatal(err)
		}
	}
	b := start(t, "--operator", "--authentication-token-webhook-config-file", k.kubeconfig, "--authentication-token-webhook-cache-ttl", "1s", "--authorization-webhook-config-file", k.kubeconfig)
	host := b.host(t)
	for _, tenant := range []string{"solar", "lunar"} {
		host.apply(t, tenantObject(tenant, "{}"))
		awaitTenant(t, host, tenant)
	}
	host.apply(t, strings.ReplaceAll(roleMapping, "p1:", projects["solar"]+":"), "--server-side")
	solar := b.space(t, "solar")
	solar.namespace(t, "team")
	b.space(t, "lunar").namespace(t, "team")
	login := func(user, domain string) (*cluster, string) {
		token := must(k.token(t.Context(), user, domain, "app"))(t)
		return atEndpoint(t, solar, withToken(solar.config, token)), token
	}
	alice, token := login("alice", "solar")
	eve, _ := login("eve", "lunar")
	mallory, _ := login("mallory", "system")
	for _, c := range []*cluster{alice, eve} { // by a role binding, and by the webhook
		eventually(t, func() error { return mayMake(t, c, "team") })
		if err := mayList(t, c, ""); !apierrors.IsForbidden(err) {
			t.Errorf("what nobody allows: %v", err)
		}
	}
	review := must(alice.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(t)
	if who := review.Status.UserInfo; who.Username != "alice" || who.UID != users["alice"] || !slices.Contains(who.Groups, "editor") || !slices.Contains(who.Groups, projects["solar"]+":editor") {
		t.Errorf("alice is %+v", who)
	}
	if err := mayList(t, alice, "lunar"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "is not one of that tenant") {
		t.Errorf("in the space of another domain: %v", err)
	}
	if err := mayList(t, mallory, "solar"); !apierrors.IsUnauthorized(err) || !strings.Contains(err.Error(), "names the tenant system") {
		t.Errorf("a user of a domain with the name system: %v", err)
	}
	if _, _, err := k.request(t.Context(), http.MethodDelete, "/auth/tokens", "", "X-Subject-Token", token); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if err := mayMake(t, alice, "team"); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("with a token that Keystone has revoked: %w", err)
		}
		return nil
	})
}
