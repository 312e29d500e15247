// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/coreos/go-oidc"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// viaEndpoint sends requests for the in-cluster host name of issuers to the API endpoint.
type viaEndpoint struct {
	endpoint *url.URL
	next     http.RoundTripper
}

func (v viaEndpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = v.endpoint.Host
	return v.next.RoundTrip(r)
}

// relyingParty is the context of a program outside of a space that verifies tokens of its issuer, with a credential of config.
func relyingParty(t *testing.T, of *cluster, config *rest.Config) context.Context {
	t.Helper()
	client := must(rest.HTTPClientFor(config))(t)
	client.Transport = viaEndpoint{must(url.Parse(of.endpoint()))(t), client.Transport}
	return oidc.ClientContext(t.Context(), client)
}

// A3: each space is an OpenID Connect issuer of its own, whose tokens other programs verify, and whose tokens are worthless elsewhere. Who has
// no credential learns nothing of it, and wakes no space.
func TestOtherProgramsVerifyTokensOfASpace(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "solar", "--space", "lunar")
	const issuers, audience = "https://kubernetes.default.svc.cluster.local/spaces/", "vault"
	spaces, tokens := map[string]*cluster{}, map[string]string{}
	for _, name := range []string{"solar", "lunar"} {
		space := b.space(t, name)
		namespace := space.namespace(t, "apps")
		space.kubectl(t, "create", "serviceaccount", "robot", "-n", namespace)
		review := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience, issuers + name}}}
		spaces[name], tokens[name] = space, must(space.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "robot", review, metav1.CreateOptions{}))(t).Status.Token
	}
	for name, space := range spaces {
		// Any ServiceAccount of the space may read the documents, as in every cluster.
		ctx := relyingParty(t, space, withToken(space.config, tokens[name]))
		provider := must(oidc.NewProvider(ctx, issuers+name))(t)
		verifier := provider.Verifier(&oidc.Config{ClientID: audience})
		for of, token := range tokens {
			verified, err := verifier.Verify(ctx, token)
			if of == name && (err != nil || verified.Subject != "system:serviceaccount:apps:robot") {
				t.Errorf("a token of %s, verified by its issuer: %v, %v", of, verified, err)
			}
			if of != name && (err == nil || !strings.Contains(err.Error(), "failed to verify signature")) {
				t.Errorf("a token of %s, verified by the issuer of %s: %v", of, name, err)
			}
			_, err = must(kubernetes.NewForConfig(withToken(space.config, token)))(t).AuthenticationV1().SelfSubjectReviews().
				Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if of == name && err != nil || of != name && !apierrors.IsUnauthorized(err) {
				t.Errorf("a token of %s, used in %s: %v", of, name, err)
			}
		}
		if _, err := oidc.NewProvider(ctx, issuers+"another"); err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("with a token of %s, the issuer of another space: %v", name, err)
		}
	}
	b.command(t, "sleep", "solar")
	get := func(path string) string {
		client := must(rest.HTTPClientFor(rest.AnonymousClientConfig(spaces["solar"].config)))(t)
		response, err := client.Get(spaces["solar"].endpoint() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.Status + " " + string(must(io.ReadAll(response.Body))(t))
	}
	for _, document := range []string{"/.well-known/openid-configuration", "/openid/v1/jwks"} {
		none := get("/spaces/none" + document)
		for _, space := range []string{"solar", "lunar"} { // one that sleeps, and one that is awake
			if got := get("/spaces/" + space + document); got != none || !strings.HasPrefix(got, "401 ") {
				t.Errorf("without a credential, %s of the space %s is %s; want %s, as if there were none", document, space, got, none)
			}
		}
	}
	if state, message := b.stateOf(t, "solar"); state != "Asleep" {
		t.Errorf("after requests without a credential, the space is %s (%s)", state, message)
	}
}
