// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// clientCA signs certificates of the platform's clients.
type clientCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newClientCA(t *testing.T) *clientCA {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "clients"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	ca := &clientCA{template, key}
	ca.cert = must(x509.ParseCertificate(ca.sign(t, template, &key.PublicKey)))(t)
	return ca
}

func (c *clientCA) sign(t *testing.T, template *x509.Certificate, key *ecdsa.PublicKey) []byte {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	return must(x509.CreateCertificate(rand.Reader, template, c.cert, key, c.key))(t)
}

func (c *clientCA) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw})
}

// client returns the API endpoint, without a path, for a client with a certificate of a subject.
func (c *clientCA) client(t *testing.T, of *cluster, subject pkix.Name) *cluster {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	cert := c.sign(t, &x509.Certificate{Subject: subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, &key.PublicKey)
	config := rest.AnonymousClientConfig(of.config)
	config.CertData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	config.KeyData = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: must(x509.MarshalECPrivateKey(key))(t)})
	return atEndpoint(t, of, config)
}

// atEndpoint returns the API endpoint, without a path, for a client.
func atEndpoint(t *testing.T, of *cluster, config *rest.Config) *cluster {
	t.Helper()
	config.Host = of.endpoint()
	return &cluster{Interface: must(kubernetes.NewForConfig(config))(t), config: config}
}

// mayList returns the error of a client that lists the namespaces of a tenant by its full path, or its own by the short path.
func mayList(t *testing.T, c *cluster, tenant string) error {
	t.Helper()
	client := c
	if tenant != "" {
		client = c.fullPaths(t, tenant)
	}
	_, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	return err
}

// A1, A2, U2, Z1, Z2, Z3: clients whom the platform knows reach the space of their tenant by short and full paths, and no other one; system
// users reach all. What they may do there is what the space says.
func TestThePlatformKnowsClientsOfItsTenants(t *testing.T) {
	t.Parallel()
	ca, dir := newClientCA(t), t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	b := start(t, "--operator", "--space-domain", "berth.test", "--client-ca-file", file("ca.crt", string(ca.pem())),
		"--token-auth-file", file("tokens.csv", "of-bob,bob,u1,crew,,solar\nof-root,root,u2,system:masters\nof-eve,eve,u3,,lunar\n"),
		"--basic-auth-file", file("passwords.csv", "of-dave,dave,u4,crew,,solar\n"))
	host := b.host(t)
	for _, tenant := range []string{"solar", "lunar"} {
		host.apply(t, tenantObject(tenant, "{owners: [{kind: User, name: alice}, {kind: Group, name: crew}, {kind: User, name: eve}]}"))
		awaitTenant(t, host, tenant)
	}
	patchSpace(t, host, "lunar", "spec: {isolation: Dedicated}")
	solar, lunar := b.space(t, "solar"), b.space(t, "lunar")
	for _, space := range []*cluster{solar, lunar} {
		space.kubectl(t, "create", "clusterrolebinding", "crew", "--clusterrole=view", "--group=crew", "--user=alice", "--user=eve")
	}
	withPassword := rest.AnonymousClientConfig(solar.config)
	withPassword.Username, withPassword.Password = "dave", "of-dave"
	alice := ca.client(t, solar, pkix.Name{CommonName: "alice", Organization: []string{"tenant:solar"}})
	eve := atEndpoint(t, solar, withToken(solar.config, "of-eve"))
	members := map[string]*cluster{
		"a certificate": alice, "a token": atEndpoint(t, solar, withToken(solar.config, "of-bob")), "a password": atEndpoint(t, solar, withPassword),
		"a certificate of the other form": ca.client(t, solar, pkix.Name{CommonName: "solar:frank", Organization: []string{"crew"}}),
	}
	for how, client := range members {
		for _, tenant := range []string{"", "solar"} {
			eventually(t, func() error { return mayList(t, client, tenant) })
		}
		for _, tenant := range []string{"lunar", "system", "nobody"} {
			if err := mayList(t, client, tenant); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "is not one of that tenant") {
				t.Errorf("with %s, in the space of the tenant %s: %v", how, tenant, err)
			}
		}
		if _, err := client.CoreV1().RESTClient().Get().AbsPath("/spaces/lunar/api/v1/namespaces").DoRaw(t.Context()); !apierrors.IsForbidden(err) {
			t.Errorf("with %s, in another space: %v", how, err)
		}
		if _, err := client.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("with %s, what the space doesn't allow: %v", how, err)
		}
	}
	// A dedicated space gets the identity from the gateway, and nobody else can say who he is.
	eventually(t, func() error { return mayList(t, eve, "") })
	review := must(eve.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(t)
	if who := review.Status.UserInfo; who.Username != "eve" || !slices.Equal(who.Extra["berth.dev/tenant"], []string{"lunar"}) {
		t.Errorf("in a dedicated space, eve is %v", who)
	}
	forged := base64.StdEncoding.EncodeToString([]byte(`{"Name": "root", "Groups": ["system:masters"], "Tenant": "system", "Proof": "Certificate"}`))
	for _, header := range []string{"X-Berth-Identity", "X-Remote-User"} {
		_, err := eve.RbacV1().RESTClient().Get().AbsPath("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings").
			SetHeader(header, forged).SetHeader("X-Remote-Group", "system:masters").DoRaw(t.Context())
		if !apierrors.IsForbidden(err) {
			t.Errorf("with the header %s of her own, eve gets %v", header, err)
		}
	}
	// System users reach every space, and the host.
	root := atEndpoint(t, solar, withToken(solar.config, "of-root"))
	for _, tenant := range []string{"", "solar", "lunar", "system"} {
		if err := mayList(t, root, tenant); err != nil {
			t.Errorf("a system user, in the space of the tenant %q: %v", tenant, err)
		}
	}
	if err := mayList(t, root, "nobody"); !apierrors.IsNotFound(err) {
		t.Errorf("a system user, in the space of no tenant: %v", err)
	}
	if nodes := must(root.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t); len(nodes.Items) != len(must(host.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items) {
		t.Errorf("the short path of a system user leads to %d nodes", len(nodes.Items))
	}
	// Owners are known by the same names, if they are in the owner scope.
	owner := ca.client(t, solar, pkix.Name{CommonName: "alice", Organization: []string{"tenant:solar"}, OrganizationalUnit: []string{"berth.dev"}})
	for client, may := range map[*cluster]bool{owner: true, alice: false} {
		_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "of-alice-"}}, metav1.CreateOptions{})
		if may && err != nil || !may && !apierrors.IsForbidden(err) {
			t.Errorf("alice may create a namespace as an owner: %t; the error is %v", may, err)
		}
	}
	refusedClients(t, ca, solar)
	hostNames(t, map[string]*cluster{"solar": solar, "lunar": lunar}, root)
	// An identity wakes its space.
	b.command(t, "sleep", "solar")
	if _, err := alice.CoreV1().Pods(corev1.NamespaceDefault).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("of a space that slept: %v", err)
	}
}

// hostNames checks that host names lead to their spaces, with the certificate of the endpoint.
func hostNames(t *testing.T, spaces map[string]*cluster, root *cluster) {
	t.Helper()
	uid := func(c kubernetes.Interface) types.UID {
		return must(c.CoreV1().Namespaces().Get(t.Context(), corev1.NamespaceDefault, metav1.GetOptions{}))(t).UID
	}
	for space, own := range spaces {
		address := strings.TrimPrefix(own.endpoint(), "https://")
		_, port, _ := strings.Cut(address, ":")
		config := rest.CopyConfig(root.config)
		config.Host = "https://" + space + ".berth.test:" + port
		config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
		if got, want := uid(must(kubernetes.NewForConfig(config))(t)), uid(own); got != want {
			t.Errorf("the host name of %s leads to another space: its namespace has the UID %s, want %s", space, got, want)
		}
		config.ServerName = "other.berth.test"
		if _, err := must(kubernetes.NewForConfig(config))(t).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "use a connection for each host name") {
			t.Errorf("by a connection for another host: %v", err)
		}
	}
}

// refusedClients checks that clients whose credential leads nowhere are told why.
func refusedClients(t *testing.T, ca *clientCA, of *cluster) {
	t.Helper()
	for reason, c := range map[string]struct {
		client *cluster
		want   string
	}{
		"a tenant that doesn't exist": {ca.client(t, of, pkix.Name{CommonName: "alice", Organization: []string{"tenant:mars"}}), "the tenant mars, which has no space"},
		"two tenants":                 {ca.client(t, of, pkix.Name{CommonName: "alice", Organization: []string{"tenant:solar", "tenant:system"}}), "more than one organization"},
		"a group of Kubernetes":       {ca.client(t, of, pkix.Name{CommonName: "alice", Organization: []string{"tenant:solar"}, OrganizationalUnit: []string{"system:masters"}}), "the user or group"},
		"another CA":                  {newClientCA(t).client(t, of, pkix.Name{CommonName: "alice", Organization: []string{"tenant:solar"}}), "a space's API is at"},
	} {
		if err := mayList(t, c.client, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %s", reason, err, c.want)
		}
	}
}
