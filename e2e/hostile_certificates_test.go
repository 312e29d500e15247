// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// rootOf is the URL of what serves a cluster, without the path that leads to a space.
func rootOf(t *testing.T, c *cluster) string {
	t.Helper()
	u := must(url.Parse(c.config.Host))(t)
	u.Path = ""
	return u.String()
}

// U2: a client's certificate names its space, so that clients work that keep no path of a server's URL.
func TestKubectlProxyReachesTheClientsSpace(t *testing.T) {
	t.Parallel()
	demo := sharedBerth(t).demo(t)
	demo.kubectl(t, "create", "configmap", "by-proxy")
	if err := suite().build(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), suite().command("kubectl"), "proxy", "--port=0")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+demo.kubeconfig, "HOME="+suite().dir, "KUBECACHEDIR="+filepath.Dir(demo.kubeconfig))
	var out buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var address string
	eventually(t, func() error {
		address = regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(out.String())
		if address == "" {
			return fmt.Errorf("kubectl proxy says %q", out.String())
		}
		return nil
	})
	proxied := &cluster{Interface: must(kubernetes.NewForConfig(&rest.Config{Host: "http://" + address}))(t)}
	await(t, proxied.CoreV1().ConfigMaps("default").Get, "by-proxy", there)
}

// S19, U2: a certificate that only says that it is of a space is nobody's, whether there is such a space or not.
func TestHostileCertificatesOfNoSpaceAreNobodys(t *testing.T) {
	t.Parallel()
	demo := sharedBerth(t).demo(t)
	answers := map[string]string{}
	for _, issuer := range []string{"berth-space-demo", "berth-space-nobody", "berth-space-../demo", "berth-space-"} {
		key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		ca := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: issuer}, IsCA: true, BasicConstraintsValid: true,
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		}
		client := &x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
			NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		der := must(x509.CreateCertificate(rand.Reader, client, ca, key.Public(), key))(t)
		transport := &http.Transport{TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		}}
		t.Cleanup(transport.CloseIdleConnections)
		req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, rootOf(t, demo)+"/api/v1/secrets", http.NoBody))(t)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body := must(io.ReadAll(resp.Body))(t)
		_ = resp.Body.Close()
		answers[fmt.Sprint(resp.StatusCode, string(body))] = issuer
		want := http.StatusUnauthorized
		if issuer == "berth-space-" {
			want = http.StatusNotFound
		}
		if resp.StatusCode != want {
			t.Errorf("a certificate of %q gets %d: %s", issuer, resp.StatusCode, body)
		}
	}
	if len(answers) != 2 {
		t.Errorf("answers differ: %v", answers)
	}
}
