// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const hostRobot = "berth:host:serviceaccount:tenant-system:robot"

// O9: a ServiceAccount of the host owns a tenant, by a token of the host for Berth, whether the space shares a process or has its own, and
// whether it sleeps or not.
func TestServiceAccountsOfTheHostOwnTenants(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator")
	host := b.host(t)
	host.kubectl(t, "create", "namespace", "tenant-system")
	for space, isolation := range map[string]string{"shared": "Shared", "alone": "Dedicated"} {
		host.kubectl(t, "create", "serviceaccount", space, "-n", "tenant-system") // owns nothing
		host.apply(t, "{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: "+space+"}, spec: {space: {isolation: "+isolation+"}}}")
		host.kubectl(t, "wait", "--for=condition=Ready", "tenant/"+space, "--timeout=90s")
	}
	for _, space := range []string{"shared", "alone"} {
		t.Run(space, func(t *testing.T) {
			h := &hostAccount{berth: b, host: host, space: space, admin: b.issued(t, space)}
			h.ownedBy(t, "[{kind: HostServiceAccount, name: 'system:serviceaccount:tenant-system:robot'}]")
			host.kubectl(t, "create", "serviceaccount", "robot", "-n", "tenant-system")
			t.Run("is an owner", h.isAnOwner)
			t.Run("proves itself by its token alone", h.provesItself)
			t.Run("wakes its space", h.wakes)
			t.Run("ends with the owner", h.endsWithTheOwner)
			t.Run("ends with the account", h.endsWithTheAccount)
		})
	}
}

// hostAccount is the ServiceAccount robot of the host, which owns a tenant.
type hostAccount struct {
	berth       *berth
	host, admin *cluster
	space       string
}

func (h *hostAccount) ownedBy(t *testing.T, owners string) {
	t.Helper()
	h.host.kubectl(t, "patch", "tenant", h.space, "--type", "merge", "--patch", "spec: {owners: "+owners+"}")
	eventually(t, func() error {
		return expect("that the Space has the owners", strings.Contains(h.host.kubectl(t, "get", "space", h.space, "-o", "jsonpath={.spec.access.owners}"), "HostServiceAccount"), owners != "null")
	})
	awaitApplied(t, h.host, h.space)
}

// token is what kubectl prints.
func token(t *testing.T, c *cluster, name string, args ...string) string {
	t.Helper()
	return strings.TrimSpace(c.kubectl(t, append([]string{"create", "token", name, "-n", "tenant-system"}, args...)...))
}

// by is the space as seen by a client with a token, which kubectl reads from a file.
func (h *hostAccount) by(t *testing.T, token string) *cluster {
	t.Helper()
	dir := t.TempDir()
	ca := base64.StdEncoding.EncodeToString(h.admin.config.CAData)
	kubeconfig := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: s, contexts: [{name: s, context: {cluster: s, user: robot}}],
clusters: [{name: s, cluster: {server: %q, certificate-authority-data: %q}}], users: [{name: robot, user: {tokenFile: %q}}]}`,
		h.admin.config.Host, ca, filepath.Join(dir, "token"))
	for name, text := range map[string]string{"token": token, "config": kubeconfig} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return newCluster(t, filepath.Join(dir, "config"))
}

func (h *hostAccount) robot(t *testing.T) *cluster {
	t.Helper()
	return h.by(t, token(t, h.host, "robot", "--audience", "berth.dev"))
}

func (h *hostAccount) isAnOwner(t *testing.T) {
	robot := h.robot(t)
	is := must(whoAmI(t, robot))(t)
	if want := []string{"system:authenticated", "berth:host:serviceaccounts", "berth:host:serviceaccounts:tenant-system"}; is.Username != hostRobot || !slices.Equal(slices.Sorted(slices.Values(is.Groups)), slices.Sorted(slices.Values(want))) {
		t.Errorf("it is %s of %v", is.Username, is.Groups)
	}
	must(robot.fullPaths(t, h.space).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}))(t) // U1
	robot.kubectl(t, "create", "namespace", "robots")
	eventually(t, func() error {
		subjects := robot.kubectl(t, "get", "rolebindings", "-n", "robots", "-o", "jsonpath={.items[*].subjects[*]['kind','name']}")
		return expect("that a role binding names it", strings.Contains(subjects, "User") && strings.Contains(subjects, hostRobot), true)
	})
	robot.kubectl(t, "create", "clusterrole", "of-the-robot", "--verb=get", "--resource=pods")
}

func unauthorized(t *testing.T, what string, c *cluster) {
	t.Helper()
	if is, err := whoAmI(t, c); !apierrors.IsUnauthorized(err) {
		t.Errorf("%s: %s, %v, want Unauthorized", what, is.Username, err)
	}
}

func (h *hostAccount) provesItself(t *testing.T) {
	unauthorized(t, "a token for the host's API", h.by(t, token(t, h.host, "robot")))
	unauthorized(t, "a ServiceAccount that owns nothing", h.by(t, token(t, h.host, h.space, "--audience", "berth.dev")))
	atHost := must(kubernetes.NewForConfig(withToken(h.host.config, token(t, h.host, "robot", "--audience", "berth.dev"))))(t)
	unauthorized(t, "a token for Berth at the host's API", &cluster{Interface: atHost})

	// A ServiceAccount of the space of the same name is another one.
	h.admin.kubectl(t, "create", "namespace", "tenant-system")
	h.admin.kubectl(t, "create", "serviceaccount", "robot", "-n", "tenant-system")
	twin := h.by(t, token(t, h.admin, "robot"))
	if _, err := twin.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a ServiceAccount of the space of the same name: %v, want Forbidden", err)
	}
	unauthorized(t, "its token for Berth", h.by(t, token(t, h.admin, "robot", "--audience", "berth.dev")))

	// The claims are no secret, and headers are anybody's.
	unauthorized(t, "a token with a forged signature", h.by(t, h.forged(t)))
	for name, config := range map[string]*rest.Config{"nobody": withToken(twin.config, ""), "the twin": twin.config} {
		client := rest.CopyConfig(config)
		client.NextProtos = []string{"http/1.1"} // which has hop-by-hop headers
		forged := base64.StdEncoding.EncodeToString([]byte(`{"Name": "system:serviceaccount:tenant-system:robot", "Proof": "HostServiceAccount"}`))
		for _, hop := range []string{"close", "X-Berth-Identity"} {
			_, err := must(kubernetes.NewForConfig(client))(t).CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces").
				SetHeader("X-Berth-Identity", forged).SetHeader("Connection", hop).DoRaw(t.Context())
			if !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
				t.Errorf("%s with a forged header: %v", name, err)
			}
		}
	}
	// Whoever may not impersonate users can't become it.
	if _, err := twin.as(t, hostRobot).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the twin impersonates it: %v, want Forbidden", err)
	}
	must(h.admin.as(t, hostRobot).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}))(t)
	if _, stderr, code := runBerth(t, "kubeconfig", h.space, "--user", hostRobot, "--data-dir", h.berth.dir); code == 0 {
		t.Error("Berth issues a certificate of it")
	} else if !strings.Contains(stderr, "ServiceAccount of the host") {
		t.Errorf("why Berth issues no certificate of it is not told: %s", stderr)
	}
}

// forged is a token with the claims of the robot's, and a signature of nobody.
func (h *hostAccount) forged(t *testing.T) string {
	t.Helper()
	parts := strings.Split(token(t, h.host, "robot", "--audience", "berth.dev"), ".")
	var claims map[string]any
	if err := json.Unmarshal(must(base64.RawURLEncoding.DecodeString(parts[1]))(t), &claims); err != nil {
		t.Fatal(err)
	}
	claims["jti"] = "forged"
	parts[1] = base64.RawURLEncoding.EncodeToString(must(json.Marshal(claims))(t))
	return strings.Join(parts, ".")
}

func (h *hostAccount) wakes(t *testing.T) {
	h.berth.command(t, "sleep", h.space)
	unauthorized(t, "a forged token at a space that sleeps", h.by(t, h.forged(t)))
	if state, _ := h.berth.stateOf(t, h.space); state != "Asleep" {
		t.Errorf("a forged token woke the space: it is %s", state)
	}
	h.robot(t).kubectl(t, "get", "namespace", "robots")
	h.berth.awaitState(t, h.space, "Running")
}

func (h *hostAccount) endsWithTheOwner(t *testing.T) {
	robot := h.robot(t)
	lost := must(robot.CoreV1().ConfigMaps("robots").Watch(t.Context(), metav1.ListOptions{}))(t)
	defer lost.Stop()
	h.ownedBy(t, "null")
	unauthorized(t, "who was an owner", robot)
	eventually(t, func() error { return ended(lost.ResultChan()) })
	h.ownedBy(t, "[{kind: HostServiceAccount, name: 'system:serviceaccount:tenant-system:robot'}]") // again
	must(whoAmI(t, robot))(t)
}

func (h *hostAccount) endsWithTheAccount(t *testing.T) {
	robot := h.robot(t)
	lost := must(robot.CoreV1().ConfigMaps("robots").Watch(t.Context(), metav1.ListOptions{}))(t)
	defer lost.Stop()
	h.host.kubectl(t, "delete", "serviceaccount", "robot", "-n", "tenant-system")
	eventually(t, func() error {
		if _, err := whoAmI(t, robot); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("a deleted ServiceAccount: %w", errors.Join(err, errors.New("want Unauthorized")))
		}
		return nil
	})
	eventually(t, func() error { return ended(lost.ResultChan()) })
}
