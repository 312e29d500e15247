// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// dex is a Dex that runs, an OpenID Connect provider with users whose password is "password".
type dex struct {
	issuer, ca string // ca is a file
	roots      *x509.CertPool
	log        *buffer
}

// dexConfig has tokens that expire soon, so that they are refreshed, each once.
const dexConfig = `
issuer: %[1]s
storage: {type: memory}
web: {https: %[2]q, tlsCert: %[3]s, tlsKey: %[4]s}
expiry:
  idTokens: 20s
  refreshTokens: {reuseInterval: 1ms}
oauth2: {skipApprovalScreen: true}
enablePasswordDB: true
staticClients:
- {id: berth, name: Berth, public: true}
staticPasswords:
- {email: alice@solar.example.com, username: alice, userID: "1", hash: %[5]q}
- {email: eve@lunar.example.com, username: eve, userID: "2", hash: %[5]q}
- {email: root@example.com, username: root, userID: "3", hash: %[5]q}
- {email: mallory@system.example.com, username: mallory, userID: "4", hash: %[5]q}
`

// dexPassword is the hash of "password".
const dexPassword = "$2a$10$2b2cU8CPhOTaGrs1HRQuAueS7JTT5ZHsHSzYiFPm1leZck7Mc8T4W"

var buildDex = sync.OnceValue(func() error {
	cmd := exec.Command("go", "build", "-o", suite().command("dex"), "github.com/dexidp/dex/cmd/dex")
	cmd.Dir = "../hack/dex"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build Dex: %w\n%s", err, out)
	}
	return nil
})

// startDex runs Dex until the test ends.
func startDex(t *testing.T) *dex {
	t.Helper()
	if err := buildDex(); err != nil {
		t.Fatal(err)
	}
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := listener.Addr().String()
	_ = listener.Close() // Dex listens there by itself
	dir, ca := t.TempDir(), newClientCA(t)
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	cert := ca.sign(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, &key.PublicKey)
	d := &dex{issuer: "https://" + address + "/dex", ca: file("ca.crt", ca.pem()), roots: x509.NewCertPool(), log: &buffer{}}
	d.roots.AddCert(ca.cert)
	config := fmt.Sprintf(dexConfig, d.issuer, address,
		file("tls.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})),
		file("tls.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: must(x509.MarshalECPrivateKey(key))(t)})), dexPassword)
	cmd := exec.Command(suite().command("dex"), "serve", file("dex.yaml", []byte(config)))
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = d.log, d.log, dieWithParent()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Dex printed:\n%s", d.log.String())
		}
	})
	eventually(t, func() error {
		response, err := d.browser(t).Get(d.issuer + "/.well-known/openid-configuration")
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
	return d
}

// authenticationConfig writes the configuration of Berth for Dex, and returns its path.
func (d *dex) authenticationConfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "authentication.yaml")
	ca := must(os.ReadFile(d.ca))(t)
	config := fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: %q, audiences: [berth], certificateAuthority: %q}
  claimMappings:
    username: {claim: email, prefix: ""}
    extra:
    - {key: berth.dev/tenant, valueExpression: "claims.email.split('@')[1].split('.')[0]"}
    - {key: berth.dev/system, valueExpression: "claims.email == 'root@example.com' ? 'true' : ''"}
`, d.issuer, ca)
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// browser returns a client that trusts Dex, and keeps cookies and follows redirects as a browser does.
func (d *dex) browser(t *testing.T) *http.Client {
	t.Helper()
	jar := must(cookiejar.New(nil))(t)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: d.roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport, Timeout: time.Minute}
}

// fillForms opens a URL, and submits the forms that it leads to with the fields that they have of values, until a page has none. It returns
// that page.
func fillForms(t *testing.T, browser *http.Client, open string, values map[string]string) string {
	t.Helper()
	request := must(http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, open, nil))(t)
	for range 5 {
		response, err := browser.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		page := must(html.Parse(response.Body))(t)
		_ = response.Body.Close()
		form := firstOf(page, "form")
		if form == nil {
			return textOf(page)
		}
		fields := url.Values{}
		for node := range form.Descendants() {
			if name := attribute(node, "name"); node.Data == "input" && name != "" {
				fields.Set(name, attribute(node, "value"))
				if value, ok := values[name]; ok {
					fields.Set(name, value)
				}
			}
		}
		action := must(response.Request.URL.Parse(attribute(form, "action")))(t)
		request = must(http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, action.String(), strings.NewReader(fields.Encode())))(t)
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	t.Fatalf("%s leads from form to form", open)
	return ""
}

func firstOf(page *html.Node, element string) *html.Node {
	for node := range page.Descendants() {
		if node.Type == html.ElementNode && node.Data == element {
			return node
		}
	}
	return nil
}

func attribute(node *html.Node, name string) string {
	for _, a := range node.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func textOf(page *html.Node) string {
	var text strings.Builder
	for node := range page.Descendants() {
		if node.Type == html.TextNode {
			text.WriteString(node.Data)
		}
	}
	return strings.Join(strings.Fields(text.String()), " ")
}
