// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/internal/testwebhook"
)

// Extra fields as k8s-keystone-auth has them.
const (
	keystoneDomain  = "alpha.kubernetes.io/identity/user/domain/name"
	keystoneRoles   = "alpha.kubernetes.io/identity/roles"
	keystoneProject = "alpha.kubernetes.io/identity/project/id"
)

// identityService is a webhook that reviews tokens, and one that authorizes.
type identityService struct {
	reviews, access *testwebhook.Server

	mu     sync.Mutex
	tokens map[string]authenticationv1beta1.UserInfo
	seen   []string                                       // all tokens
	asked  []authorizationv1beta1.SubjectAccessReviewSpec // all requests
}

func newIdentityService(t *testing.T) *identityService {
	t.Helper()
	s := &identityService{tokens: map[string]authenticationv1beta1.UserInfo{}}
	s.reviews = testwebhook.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		review := authenticationv1beta1.TokenReview{}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, review.Spec.Token)
		review.Status.User, review.Status.Authenticated = s.tokens[review.Spec.Token], s.tokens[review.Spec.Token].Username != ""
		testwebhook.Answer(w, review)
	})
	s.access = testwebhook.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		review := authorizationv1beta1.SubjectAccessReview{}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, review.Spec)
		resource := review.Spec.ResourceAttributes
		review.Status.Allowed = resource != nil && resource.Resource == "configmaps" && slices.Contains(review.Spec.Extra[keystoneRoles], "writer") &&
			slices.Equal(review.Spec.Extra["berth.dev/tenant"], review.Spec.Extra["berth.dev/space-tenant"])
		testwebhook.Answer(w, review)
	})
	return s
}

// give gives a token out; one of no user is revoked.
func (s *identityService) give(token, name string, extra map[string]authenticationv1beta1.ExtraValue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = authenticationv1beta1.UserInfo{Username: name, Extra: extra}
}

func keystoneExtra(domain, project string, roles ...string) map[string]authenticationv1beta1.ExtraValue {
	return map[string]authenticationv1beta1.ExtraValue{keystoneDomain: {domain}, keystoneProject: {project}, keystoneRoles: roles}
}

func (s *identityService) flags() []string {
	return []string{
		"--authentication-token-webhook-config-file", s.reviews.Kubeconfig, "--authentication-token-webhook-cache-ttl", "1s",
		"--authorization-webhook-config-file", s.access.Kubeconfig, "--authorization-webhook-cache-authorized-ttl", "1s", "--authorization-webhook-cache-unauthorized-ttl", "1s",
	}
}

// mayMake returns the error of a client that makes a ConfigMap in its own space.
func mayMake(t *testing.T, c *cluster, namespace string) error {
	t.Helper()
	_, err := c.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "by-webhook-"}}, metav1.CreateOptions{})
	return err
}

// roleMapping gives a role of an identity service a ClusterRole in all tenants' spaces.
const roleMapping = `{apiVersion: berth.dev/v1alpha1, kind: BerthConfiguration, metadata: {name: berth}, spec: {additionalRoleBindings: [
  {clusterRoleName: view, subjects: [{kind: Group, name: reader}]}, {clusterRoleName: edit, subjects: [{kind: Group, name: "p1:editor"}]}]}}`

// A4, A7, T4, Z1: the users of an identity service reach their tenant's spaces, roles become role bindings, and a webhook decides where RBAC
// allows nothing. Without the webhook, clients are asked to come again, and all others are served.
func TestAnIdentityServiceKnowsUsersByWebhooks(t *testing.T) {
	t.Parallel()
	service := newIdentityService(t)
	b := start(t, append(service.flags(), "--operator", "--default-tenant", "everybody")...)
	host := b.host(t)
	for _, tenant := range []string{"solar", "lunar"} {
		host.apply(t, tenantObject(tenant, "{}"))
		awaitTenant(t, host, tenant)
	}
	awaitTenant(t, host, "everybody") // nobody has created it
	patchSpace(t, host, "lunar", "spec: {isolation: Dedicated}")
	host.apply(t, roleMapping, "--server-side")
	solar, lunar := b.space(t, "solar"), b.space(t, "lunar")
	const team = "team"
	solar.namespace(t, team)
	client := func(token string) *cluster { return atEndpoint(t, solar, withToken(solar.config, token)) }
	service.give("of-alice", "alice", keystoneExtra("solar", "p1", "reader", "editor"))
	service.give("of-bob", "bob", keystoneExtra("solar", "p2", "reader", "editor"))
	service.give("of-eve", "eve", keystoneExtra("lunar", "p3", "writer"))
	service.give("of-nemo", "nemo", map[string]authenticationv1beta1.ExtraValue{keystoneRoles: {"writer"}})
	service.give("of-root", "root", keystoneExtra("system", "p1", "admin"))
	service.give("of-mallory", "mallory", keystoneExtra("Solar", "p1", "admin"))
	alice, bob, eve, nemo := client("of-alice"), client("of-bob"), client("of-eve"), client("of-nemo")

	// Roles become role bindings: of all projects, and of one.
	for _, c := range []*cluster{alice, bob} {
		eventually(t, func() error {
			_, err := c.CoreV1().Pods(team).List(t.Context(), metav1.ListOptions{})
			return err
		})
	}
	eventually(t, func() error { return mayMake(t, alice, team) })
	for reason, err := range map[string]error{"an editor of another project": mayMake(t, bob, team), "of another tenant": mayList(t, alice, "lunar"), "of the host": mayList(t, alice, "system")} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", reason, err)
		}
	}
	// A webhook decides where RBAC allows nothing, in dedicated spaces, too.
	for name, c := range map[string]*cluster{"eve": eve, "nemo": nemo} {
		eventually(t, func() error { return mayMake(t, c, corev1.NamespaceDefault) })
		if _, err := c.CoreV1().Secrets(corev1.NamespaceDefault).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s, of what nobody allows: %v", name, err)
		}
	}
	review := must(nemo.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(t)
	if who := review.Status.UserInfo; who.Username != "nemo" || !slices.Equal(who.Extra["berth.dev/tenant"], []string{"everybody"}) || !slices.Contains(who.Groups, "writer") {
		t.Errorf("a user without a tenant is %v", who)
	}
	for token, want := range map[string]string{"of-root": "names the tenant system", "of-mallory": `names the tenant "Solar"`, "of-nobody": "Unauthorized"} {
		if err := mayList(t, client(token), ""); !apierrors.IsUnauthorized(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("with the token %s: %v; want %s", token, err, want)
		}
	}
	service.hears(t, solar)
	service.endsWatches(t, alice)
	service.fails(t, solar, lunar, client)
	host.kubectl(t, "delete", "tenant", "solar", "--wait=false")
	if out, err := host.tryKubectl(t, "", "delete", "tenant", "everybody"); err == nil {
		t.Errorf("the default tenant can be deleted: %s", out)
	}
}

// hears checks what the webhooks have heard: no token of a space, and in which space a request is.
func (s *identityService) hears(t *testing.T, solar *cluster) {
	t.Helper()
	robot := solar.account(t, corev1.NamespaceDefault, "default")
	for _, c := range []*cluster{robot, atEndpoint(t, solar, robot.config)} {
		if err := mayMake(t, c, corev1.NamespaceDefault); !apierrors.IsForbidden(err) {
			t.Errorf("a ServiceAccount without rights: %v", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) == 0 || slices.ContainsFunc(s.seen, func(token string) bool { return strings.Count(token, ".") > 0 }) {
		t.Errorf("the webhook has reviewed %q", s.seen)
	}
	asked := slices.ContainsFunc(s.asked, func(a authorizationv1beta1.SubjectAccessReviewSpec) bool {
		return a.User == "system:serviceaccount:default:default" && slices.Equal(a.Extra["berth.dev/space"], []string{"solar"}) && slices.Equal(a.Extra["berth.dev/tenant"], []string{"solar"})
	})
	if !asked {
		t.Errorf("the webhook has been asked %+v", s.asked)
	}
}

// endsWatches checks that a watch ends once its token is no longer good.
func (s *identityService) endsWatches(t *testing.T, alice *cluster) {
	t.Helper()
	watch := must(alice.CoreV1().ConfigMaps("team").Watch(t.Context(), metav1.ListOptions{}))(t)
	defer watch.Stop()
	s.give("of-alice", "", nil)
	ended := time.After(time.Minute)
	for {
		select {
		case _, open := <-watch.ResultChan():
			if !open {
				return
			}
		case <-ended:
			t.Fatal("a watch lasts though its token was revoked")
		}
	}
}

// fails checks what happens while the webhooks are down.
func (s *identityService) fails(t *testing.T, solar, lunar *cluster, client func(token string) *cluster) {
	t.Helper()
	s.access.CloseClientConnections()
	s.access.Close()
	eventually(t, func() error {
		if err := mayMake(t, client("of-eve"), corev1.NamespaceDefault); err == nil || apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "can't be asked now") {
			return fmt.Errorf("without the webhook that authorizes: %w", err)
		}
		return nil
	})
	s.reviews.CloseClientConnections()
	s.reviews.Close()
	begin := time.Now()
	eventually(t, func() error { // once the review no longer holds
		response, err := rawRequest(t, solar, "of-bob")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
			return fmt.Errorf("without the webhook that reviews tokens: %s", response.Status)
		}
		return nil
	})
	for _, space := range []*cluster{solar, lunar} {
		if _, err := space.CoreV1().Secrets(corev1.NamespaceDefault).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("an admin of a space, meanwhile: %v", err)
		}
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it takes %s", took)
	}
}

// rawRequest lists namespaces with a token, and doesn't try again.
func rawRequest(t *testing.T, of *cluster, token string) (*http.Response, error) {
	t.Helper()
	transport := must(rest.TransportFor(withToken(of.config, token)))(t)
	return (&http.Client{Transport: transport}).Do(must(http.NewRequestWithContext(t.Context(), http.MethodGet, of.endpoint()+"/api/v1/namespaces", nil))(t))
}
