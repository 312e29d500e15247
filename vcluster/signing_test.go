// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
)

// signingRequest asks for a certificate of a user.
func signingRequest(t *testing.T, user string, groups []string, change func(*certificatesv1.CertificateSigningRequestSpec)) (*certificatesv1.CertificateSigningRequest, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: user, Organization: groups}}, key)
	if err != nil {
		t.Fatal(err)
	}
	spec := certificatesv1.CertificateSigningRequestSpec{
		Request:    pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateRequestBlockType, Bytes: der}),
		SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
	}
	if change != nil {
		change(&spec)
	}
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "request-"}, Spec: spec}, keyPEM
}

func approve(t *testing.T, client kubernetes.Interface, request *certificatesv1.CertificateSigningRequest) error {
	t.Helper()
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", LastUpdateTime: metav1.Now(),
	})
	_, err := client.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), request.Name, request, metav1.UpdateOptions{})
	return err
}

// decided waits until a request is signed, or refused by the signer.
func decided(t *testing.T, client kubernetes.Interface, name string) (request *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	eventually(t, func() (err error) {
		request, err = client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || len(request.Status.Certificate) > 0 {
			return err
		}
		for _, c := range request.Status.Conditions {
			if c.Type == certificatesv1.CertificateFailed {
				return nil
			}
		}
		return errors.New("it is not signed")
	})
	return request
}

// signedClient is a client by a certificate that the space signs.
func signedClient(t *testing.T, admin *rest.Config, user string, groups ...string) *rest.Config {
	t.Helper()
	client := clientset(t, admin)
	request, key := signingRequest(t, user, groups, nil)
	made, err := client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := approve(t, client, made); err != nil {
		t.Fatal(err)
	}
	c := rest.AnonymousClientConfig(admin)
	c.CertData, c.KeyData, c.QPS = decided(t, client, made.Name).Status.Certificate, key, -1
	return c
}

// X2: requests of clients are signed as on a plain cluster: once they are approved, for what the signer is for, and for
// days at most.
func TestCertificateSigningRequestsAreSigned(t *testing.T) {
	gateway := newTestGateway(t)
	p := gateway.start(t, gateway.config(t, "signing"))
	config := admin(t, p)
	client := clientset(t, config)
	jane := clientset(t, signedClient(t, config, "jane", "developers"))
	_, err := jane.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights: %v", err)
	}
	// T2: by the space's own CA.
	elsewhere := gateway.start(t, gateway.config(t, "signing-elsewhere"))
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "ops"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "ops"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	foreign := signedClient(t, config, "admin", "ops")
	eventually(t, func() error { return mayReadSecrets(t, clientset(t, foreign)) })
	for user, group := range map[string]string{"ghost": "berth:admins", "alice": "berth.dev", "berth:group:ops": "ops", "berth:host:serviceaccount:ci:robot": "ops", "eve": "berth:host:serviceaccounts"} { // only Berth gives these
		if refused := signedClient(t, config, user, group); len(refused.CertData) > 0 {
			t.Errorf("a certificate of %s in %s is signed", user, group)
		}
	}
	foreign.Host = admin(t, elsewhere).Host
	if err := mayReadSecrets(t, clientset(t, foreign)); !apierrors.IsUnauthorized(err) {
		t.Errorf("a certificate that another space signed: %v", err)
	}
	requests := client.CertificatesV1().CertificateSigningRequests()
	for name, test := range map[string]struct {
		change func(*certificatesv1.CertificateSigningRequestSpec)
		lives  time.Duration // 0: it is refused
	}{
		"as long as may be": {nil, 7 * 24 * time.Hour},
		"an hour":           {func(s *certificatesv1.CertificateSigningRequestSpec) { s.ExpirationSeconds = ptr.To[int32](3600) }, time.Hour},
		"ten years": {func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.ExpirationSeconds = ptr.To[int32](10 * 365 * 24 * 3600)
		}, 7 * 24 * time.Hour},
		"a server's": {func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.Usages = append(s.Usages, certificatesv1.UsageServerAuth)
		}, 0},
		"no client's": {func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature}
		}, 0},
	} {
		request, _ := signingRequest(t, "jane", nil, test.change)
		made, err := requests.Create(t.Context(), request, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := approve(t, client, made); err != nil {
			t.Fatal(err)
		}
		signed := decided(t, client, made.Name).Status.Certificate
		if test.lives == 0 {
			if len(signed) > 0 {
				t.Errorf("%s: it is signed", name)
			}
			continue
		}
		certs, err := certutil.ParseCertsPEM(signed)
		if err != nil {
			t.Fatal(err)
		}
		if lives := certs[0].NotAfter.Sub(made.CreationTimestamp.Time); lives > test.lives+time.Minute || lives < test.lives-10*time.Minute || certs[0].IsCA {
			t.Errorf("%s: it lives for %s, want %s", name, lives, test.lives)
		}
	}

	// Nobody gets round RBAC by it, and nothing is signed that nobody approved.
	request, _ := signingRequest(t, "mallory", []string{"system:masters"}, nil)
	if _, err := requests.Create(t.Context(), request, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a request for system:masters: %v", err)
	}
	request, _ = signingRequest(t, "mallory", nil, nil)
	pending, err := requests.Create(t.Context(), request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	signedClient(t, config, "later") // the signer has seen both
	if pending, err = requests.Get(t.Context(), pending.Name, metav1.GetOptions{}); err != nil || len(pending.Status.Certificate) > 0 {
		t.Errorf("a request that nobody approved is signed (%v)", err)
	}
}
