// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/pki"
)

// claimsOf are what a token says, which is not verified.
func claimsOf(t *testing.T, token string) (claims map[string]any, registered jwt.Claims) {
	t.Helper()
	parsed, err := jwt.ParseSigned(token)
	if err != nil {
		t.Fatal(err)
	}
	if err := parsed.UnsafeClaimsWithoutVerification(&claims, &registered); err != nil {
		t.Fatal(err)
	}
	return claims, registered
}

// accepts reports whether a space knows whose token it is.
func accepts(t *testing.T, p *vcluster.ControlPlane, token string) error {
	t.Helper()
	_, err := clientset(t, bearer(t, p, token)).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

// X2, A3: a space's tokens name an issuer of its own, whose documents are where its URL says. Tokens that were issued
// before there was one are good until they end.
func TestEachSpaceIsATokenIssuerOfItsOwn(t *testing.T) {
	gateway := newTestGateway(t)
	c := gateway.config(t, "issuer")
	p := gateway.start(t, c)
	made := token(t, p, "default", "robot")
	claims, registered := claimsOf(t, made)
	const own, shared = "https://kubernetes.default.svc.cluster.local/spaces/issuer", "https://kubernetes.default.svc.cluster.local"
	if registered.Issuer != own || !registered.Audience.Contains(own) || !registered.Audience.Contains(shared) {
		t.Errorf("a token is of %s, for %v", registered.Issuer, registered.Audience)
	}
	if err := accepts(t, p, made); err != nil {
		t.Error(err)
	}
	for _, prefix := range []string{"", "/spaces/issuer"} { // as clients find it, and as pods that know the issuer only
		var document struct {
			Issuer string `json:"issuer"`
			Keys   string `json:"jwks_uri"`
		}
		if err := json.Unmarshal(get(t, p, prefix+"/.well-known/openid-configuration"), &document); err != nil || document.Issuer != own || document.Keys != own+"/openid/v1/jwks" {
			t.Errorf("the document at %q says %+v (%v)", prefix, document, err)
		}
		var keys jose.JSONWebKeySet
		if err := json.Unmarshal(get(t, p, prefix+"/openid/v1/jwks"), &keys); err != nil || len(keys.Keys) != 1 || keys.Keys[0].KeyID != p.TokenKeyID() {
			t.Errorf("the keys at %q are %+v (%v)", prefix, keys, err)
		}
	}

	key, err := keyutil.PrivateKeyFromFile(filepath.Join(c.Dir, "pki", "service-account.key"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for issuer, want := range map[string]bool{shared: true, "https://kubernetes.default.svc.cluster.local/spaces/another": false} {
		claims["iss"], claims["aud"] = issuer, []string{shared}
		before, err := jwt.Signed(signer).Claims(claims).CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		if err := accepts(t, p, before); (err == nil) != want {
			t.Errorf("a token that says it is of %s: %v", issuer, err)
		}
	}
}

// X2: no token that is requested lives for longer than a week, not even one that a pod mounts, of which upstream makes
// a year.
func TestHostileTokensLiveForDaysAtMost(t *testing.T) {
	gateway := newTestGateway(t)
	p := gateway.start(t, gateway.config(t, "long"))
	account(t, p, "default", "robot")
	client := clientset(t, admin(t, p))
	pod, err := client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "bound"},
		Spec:       corev1.PodSpec{ServiceAccountName: "robot", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const week = 7 * 24 * time.Hour
	for name, test := range map[string]struct {
		spec authenticationv1.TokenRequestSpec
		says time.Duration // that it lives
		want time.Duration
	}{
		"an hour":        {authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}, time.Hour, time.Hour},
		"ten years":      {authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](10 * 365 * 24 * 3600)}, week, week},
		"a pod's":        {authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3607), BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name}}, 3607 * time.Second, week},
		"for somebody":   {authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](1 << 32), Audiences: []string{"https://elsewhere.example"}}, week, week},
		"a pod's, years": {authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](1 << 31), BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name}}, week, week},
	} {
		request, err := client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{Spec: test.spec}, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, registered := claimsOf(t, request.Status.Token)
		if lives := registered.Expiry.Time().Sub(registered.IssuedAt.Time()); lives != test.want {
			t.Errorf("%s: it lives for %s, want %s", name, lives, test.want)
		}
		if says := request.Status.ExpirationTimestamp.Sub(registered.IssuedAt.Time()).Round(time.Minute); says != test.says.Round(time.Minute) {
			t.Errorf("%s: the answer says that it lives for %s, want %s", name, says, test.says)
		}
	}
}

// X2: tokens of the key before are accepted until the overlap has ended, whether the space starts again or runs on;
// those of the new key are, too; and the published keys say so.
func TestServiceAccountKeysOverlap(t *testing.T) {
	gateway := newTestGateway(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	c := gateway.config(t, "overlap")
	c.Clock = clock
	p := gateway.start(t, c)
	before := token(t, p, "default", "robot")
	stop(t, p)
	if err := pki.RotateServiceAccountKey(filepath.Join(c.Dir, "pki"), clock.Now(), time.Hour); err != nil {
		t.Fatal(err)
	}
	p = gateway.start(t, c)
	after := token(t, p, "default", "robot")
	published := func() int { return bytes.Count(get(t, p, "/openid/v1/jwks"), []byte(`"kid"`)) }
	for what, token := range map[string]string{"before": before, "after": after} {
		if err := accepts(t, p, token); err != nil {
			t.Errorf("within the overlap, a token of the key %s: %v", what, err)
		}
	}
	if n := published(); n != 2 {
		t.Errorf("within the overlap, %d keys are published", n)
	}
	clock.SetTime(clock.Now().Add(time.Hour))
	eventually(t, func() error { // tokens are known for some seconds
		if err := accepts(t, p, before); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("after the overlap, a token of the key before gets %w, want Unauthorized", err)
		}
		return nil
	})
	if err := accepts(t, p, after); err != nil {
		t.Errorf("after the overlap, a token of the new key: %v", err)
	}
	if n := published(); n != 1 {
		t.Errorf("after the overlap, %d keys are published", n)
	}
}

// X2: whatever a tenant who may do everything in a space has issued to it, nothing outlives a rotation of the space's
// keys.
func TestHostileCredentialsDoNotOutliveARotation(t *testing.T) {
	gateway := newTestGateway(t)
	c := gateway.config(t, "rotated")
	p := gateway.start(t, c)
	tenant := admin(t, p)
	client := clientset(t, tenant)
	account(t, p, "default", "robot")
	_, err := client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "robot", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var legacy string
	eventually(t, func() error {
		secret, err := client.CoreV1().Secrets("default").Get(t.Context(), "robot", metav1.GetOptions{})
		if err == nil && len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return errEmpty
		}
		if err == nil {
			legacy = string(secret.Data[corev1.ServiceAccountTokenKey])
		}
		return err
	})
	signed := signedClient(t, tenant, "mallory")
	tokens := map[string]string{"a token": token(t, p, "default", "robot"), "a token in a Secret": legacy}
	for what, token := range tokens {
		if err := accepts(t, p, token); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	stop(t, p)
	ca, err := pki.OpenCA(filepath.Join(c.Dir, "pki"), pki.SpaceCA(c.Name))
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Rotate(); err != nil {
		t.Fatal(err)
	}
	if err := pki.RotateServiceAccountKey(filepath.Join(c.Dir, "pki"), time.Now(), 0); err != nil {
		t.Fatal(err)
	}
	p = gateway.start(t, c)
	for what, token := range tokens {
		if err := accepts(t, p, token); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s outlives the rotation: %v", what, err)
		}
	}
	for what, config := range map[string]*rest.Config{"a kubeconfig": tenant, "a certificate that was requested": signed} {
		if _, err = clientset(t, config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s outlives the rotation: %v", what, err)
		}
	}
	if err := mayReadSecrets(t, clientset(t, admin(t, p))); err != nil {
		t.Errorf("an admin with a new kubeconfig: %v", err)
	}
}
