// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package side

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/identity"
)

// MaxTenants is how many tenants with users a platform may have.
const MaxTenants = 1000

// TenantName is the name of a tenant that [Platform] can start, whose only user the platform knows by a token. It has a space of the same
// name. i is less than [MaxTenants].
func TenantName(i int) string { return fmt.Sprint(TenantPrefix, i) }

// tenants are the tenants of a platform and their users.
type tenants struct {
	tokens string // path of a file with their tokens
	port   *port  // where spaces are served without the gateway
	server *http.Server
}

func openTenants(ctx context.Context, dir string) (*tenants, error) {
	t := &tenants{tokens: filepath.Join(dir, "tokens")}
	var lines strings.Builder
	for i := range MaxTenants {
		who := userOf(TenantName(i))
		fmt.Fprintf(&lines, "%s,%s,%s,%s,,%s\n", tokenOf(who.Tenant), who.Name, who.UID, who.Groups[0], who.Tenant)
	}
	if err := os.WriteFile(t.tokens, []byte(lines.String()), 0o600); err != nil {
		return nil, fmt.Errorf("write tokens of users: %w", err)
	}
	var err error
	t.port, err = openPort(ctx, filepath.Join(dir, "bare"))
	return t, err
}

func userOf(tenant string) *identity.Identity {
	return &identity.Identity{Name: "user-of-" + tenant, UID: tenant, Groups: []string{v1alpha1.OwnersGroup}, Tenant: tenant, Proof: identity.TokenFile}
}

func tokenOf(tenant string) string { return "token-of-" + tenant }

// tenant returns a tenant that its user owns, with a quota that nothing reaches.
func (t *tenants) tenant(name string) (*v1alpha1.Tenant, bool) {
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}}
	tenant.Spec.Owners = []v1alpha1.Owner{{Kind: v1alpha1.UserKind, Name: userOf(name).Name}}
	tenant.Spec.Quota = corev1.ResourceList{}
	for name := range v1alpha1.DefaultQuota() {
		tenant.Spec.Quota[name] = plenty(name)
	}
	return tenant, strings.HasPrefix(name, TenantPrefix)
}

// kubeconfig returns that of a tenant's user for short paths, where another one of the space has the server and its CA.
func (t *tenants) kubeconfig(ofSpace []byte, tenant string) ([]byte, error) {
	config, err := clientcmd.Load(ofSpace)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of %s: %w", tenant, err)
	}
	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	server, err := url.Parse(cluster.Server)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of %s: %w", tenant, err)
	}
	return kubeconfigOf("https://"+server.Host, cluster.CertificateAuthorityData, tokenOf(tenant))
}

func kubeconfigOf(server string, ca []byte, token string) ([]byte, error) {
	const name = "bench"
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: server, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	return data, nil
}

// bare serves a space to its tenant's user with nothing of the gateway but TLS, and returns a kubeconfig for that. It may be called once.
func (t *tenants) bare(tenant string, space http.Handler) ([]byte, error) {
	certificate, err := t.port.ca.Serving("127.0.0.1")
	if err != nil {
		return nil, err
	}
	who := userOf(tenant)
	t.server = &http.Server{
		ReadHeaderTimeout: ReadyTime, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.Get},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			space.ServeHTTP(w, r.WithContext(identity.With(r.Context(), who)))
		}),
	}
	go func() { _ = t.server.ServeTLS(t.port.listener, "", "") }()
	return kubeconfigOf("https://"+t.port.listener.Addr().String(), t.port.ca.PEM(), "")
}

func (t *tenants) close() error {
	if t.server == nil {
		return t.port.listener.Close()
	}
	return t.server.Close()
}
