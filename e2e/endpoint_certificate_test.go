// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/vcluster/pki"
)

// X1, X2: with a certificate from files, clients reach a space by the advertised name and trust the CA that issued it; a renewed
// certificate is served without a restart; and localhost, which port forwards lead to, keeps Berth's own.
func TestTheEndpointServesACertificateFromFiles(t *testing.T) {
	t.Parallel()
	const host, platform = "berth.example.com", "certified"
	existing := sharedBerth(t)
	files, address := t.TempDir(), freeAddress(t)
	company := must(pki.OpenCA(filepath.Join(files, "ca"), "company"))(t)
	file := func(name string) string { return filepath.Join(files, name) }
	issue := func() {
		pair := must(company.Server(host))(t)
		for name, data := range map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": company.PEM()} {
			if err := os.WriteFile(file(name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	issue()
	_, port, _ := net.SplitHostPort(address)
	b := newBerth(filepath.Join(t.TempDir(), "data"))
	t.Cleanup(b.end)
	b.process = spawn(t, "serve", "--data-dir", b.dir, "--listen", address, "--advertise", "https://"+host+":"+port, "--platform-name", platform,
		"--host-kubeconfig", filepath.Join(existing.dir, "host.kubeconfig"), "--space", platform,
		"--tls-cert-file", file("tls.crt"), "--tls-key-file", file("tls.key"), "--tls-ca-file", file("ca.crt"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("berth serve printed:\n%s", tailOf(b.output()))
		}
	})
	path := filepath.Join(b.dir, platform+".kubeconfig")
	eventually(t, func() error {
		_, err := os.Stat(path)
		return err
	})
	config := must(clientcmd.BuildConfigFromFlags("", path))(t)
	if config.Host != "https://"+host+":"+port+"/spaces/"+platform || !bytes.Contains(config.CAData, bytes.TrimSpace(company.PEM())) {
		t.Fatalf("the kubeconfig leads to %s, and trusts\n%s", config.Host, config.CAData)
	}
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	client := must(kubernetes.NewForConfig(config))(t)
	eventually(t, func() error {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})

	served := func(name string) *x509.Certificate {
		t.Helper()
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(config.CAData)
		conn := must((&tls.Dialer{Config: &tls.Config{ServerName: name, RootCAs: pool}}).DialContext(t.Context(), "tcp", address))(t)
		defer func() { _ = conn.Close() }()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	}
	before := served(host)
	if own := served("localhost"); own.Issuer.CommonName == before.Issuer.CommonName {
		t.Errorf("localhost has a certificate of %s", own.Issuer)
	}
	issue()
	eventually(t, func() error {
		if served(host).SerialNumber.Cmp(before.SerialNumber) == 0 {
			return errors.New("the old certificate is still served")
		}
		return nil
	})

	// Without the CA, clients use those of their systems.
	b.end()
	if err := os.WriteFile(file("ca.crt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.process = spawn(t, "serve", "--data-dir", b.dir, "--listen", address, "--advertise", "https://"+host+":"+port, "--platform-name", platform,
		"--host-kubeconfig", filepath.Join(existing.dir, "host.kubeconfig"),
		"--tls-cert-file", file("tls.crt"), "--tls-key-file", file("tls.key"), "--tls-ca-file", file("ca.crt"))
	eventually(t, func() error {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err == nil && len(config.CAData) > 0 {
			err = errors.New("the kubeconfig still has a CA")
		}
		return err
	})
	existing.host(t).kubectl(t, "delete", "space", platform, "--wait", "--timeout=180s")
}
