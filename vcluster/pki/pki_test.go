// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/vcluster/pki"
)

func TestAnAuthorityIsMadeOnceAndKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	first, err := pki.OpenCA(dir, "one")
	if err != nil {
		t.Fatal(err)
	}
	again, err := pki.OpenCA(dir, "another name")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.PEM(), again.PEM()) {
		t.Error("it was made anew")
	}
	cert := parse(t, first.PEM())
	if cert.Subject.CommonName != "one" || !cert.IsCA {
		t.Errorf("subject %s, CA %v", cert.Subject, cert.IsCA)
	}
	if _, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok {
		t.Errorf("its key is a %T", cert.PublicKey)
	}
	for _, name := range []string{"ca.crt", "ca.key"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", name, info.Mode())
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// Making a new authority in place of one that can't be read would disown every
// certificate in use.
func TestADamagedAuthorityIsNotReplaced(t *testing.T) {
	for reason, damage := range map[string]func(t *testing.T, dir string){
		"the certificate is cut short": func(t *testing.T, dir string) { write(t, filepath.Join(dir, "ca.crt"), "-----BEGIN CERT") },
		"the certificate is empty":     func(t *testing.T, dir string) { write(t, filepath.Join(dir, "ca.crt"), "") },
		"the key is gone": func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
				t.Fatal(err)
			}
		},
		"the key is another's": func(t *testing.T, dir string) {
			other := t.TempDir()
			if _, err := pki.OpenCA(other, "other"); err != nil {
				t.Fatal(err)
			}
			key, err := os.ReadFile(filepath.Join(other, "ca.key"))
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "ca.key"), string(key))
		},
	} {
		t.Run(reason, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := pki.OpenCA(dir, "one"); err != nil {
				t.Fatal(err)
			}
			damage(t, dir)
			before := files(t, dir)
			if _, err := pki.OpenCA(dir, "one"); err == nil {
				t.Error("it was opened")
			}
			if after := files(t, dir); !slices.Equal(before, after) {
				t.Errorf("files were %q, are %q", before, after)
			}
		})
	}
}

// A crash after the first of two files leaves a key alone.
func TestAKeyWithoutACertificateIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	if _, err := pki.OpenCA(dir, "one"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	ca, err := pki.OpenCA(dir, "one")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Client("x", nil); err != nil {
		t.Error(err)
	}
}

func TestCertificatesServeTheirPurposeOnly(t *testing.T) {
	ca, err := pki.OpenCA(t.TempDir(), "one")
	if err != nil {
		t.Fatal(err)
	}
	other, err := pki.OpenCA(t.TempDir(), "one") // the same name
	if err != nil {
		t.Fatal(err)
	}
	client, err := ca.Client("jane", []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	server, err := ca.Server("berth.example", "127.0.0.1", "::1")
	if err != nil {
		t.Fatal(err)
	}
	verify := func(ca *pki.CA, pair pki.Pair, usage x509.ExtKeyUsage, host string) error {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca.PEM())
		_, err := parse(t, pair.Cert).Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}, DNSName: host})
		return err
	}
	for reason, test := range map[string]struct {
		ca    *pki.CA
		pair  pki.Pair
		usage x509.ExtKeyUsage
		host  string
		ok    bool
	}{
		"client as client":              {ca, client, x509.ExtKeyUsageClientAuth, "", true},
		"client as server":              {ca, client, x509.ExtKeyUsageServerAuth, "", false},
		"server as server":              {ca, server, x509.ExtKeyUsageServerAuth, "berth.example", true},
		"server by IPv4":                {ca, server, x509.ExtKeyUsageServerAuth, "127.0.0.1", true},
		"server by IPv6":                {ca, server, x509.ExtKeyUsageServerAuth, "::1", true},
		"server of another name":        {ca, server, x509.ExtKeyUsageServerAuth, "other.example", false},
		"server as client":              {ca, server, x509.ExtKeyUsageClientAuth, "", false},
		"an authority of the same name": {other, client, x509.ExtKeyUsageClientAuth, "", false},
	} {
		if err := verify(test.ca, test.pair, test.usage, test.host); (err == nil) != test.ok {
			t.Errorf("%s: %v", reason, err)
		}
	}
	cert := parse(t, client.Cert)
	if cert.Subject.CommonName != "jane" || !slices.Equal(cert.Subject.Organization, []string{"a", "b"}) {
		t.Errorf("subject %s", cert.Subject)
	}
	if _, err := client.TLS(); err != nil {
		t.Error(err)
	}
	if _, err := ca.Client("", nil); err == nil {
		t.Error("a client without a name")
	}
	if _, err := ca.Server(); err == nil {
		t.Error("a server without a name")
	}
}

// X2: no client's certificate lives for longer than a week, whoever asks for it.
func TestClientCertificatesLiveForDaysAtMost(t *testing.T) {
	ca, err := pki.OpenCA(t.TempDir(), "one")
	if err != nil {
		t.Fatal(err)
	}
	for asked, want := range map[time.Duration]time.Duration{
		pki.ClientLifetime: 24 * time.Hour, 10 * time.Minute: 10 * time.Minute, 10 * 365 * 24 * time.Hour: 7 * 24 * time.Hour,
	} {
		pair, err := ca.ClientFor(asked, "jane", nil)
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(parse(t, pair.Cert).NotAfter); left > want || left < want-time.Minute {
			t.Errorf("asked for %s, it lives for %s, want %s", asked, left, want)
		}
	}
}

func TestAKubeconfigRefersToNoFile(t *testing.T) {
	ca, err := pki.OpenCA(t.TempDir(), "one")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Client("admin", []string{pki.AdminGroup})
	if err != nil {
		t.Fatal(err)
	}
	data, err := pki.Kubeconfig("demo", "https://berth.example/spaces/demo", ca.PEM(), "admin", pair)
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	if c.Host != "https://berth.example/spaces/demo" || !bytes.Equal(c.CAData, ca.PEM()) || !bytes.Equal(c.CertData, pair.Cert) || !bytes.Equal(c.KeyData, pair.Key) {
		t.Errorf("it says %+v", c)
	}
	if c.CAFile != "" || c.CertFile != "" || c.KeyFile != "" {
		t.Errorf("it refers to %s, %s, %s", c.CAFile, c.CertFile, c.KeyFile)
	}
}

func TestTheServiceAccountKeyIsKept(t *testing.T) {
	dir := t.TempDir()
	path, err := pki.ServiceAccountKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pki.ServiceAccountKey(dir); err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("it changed: %v", err)
	}
	write(t, path, "not a key")
	if _, err := pki.ServiceAccountKey(dir); err == nil {
		t.Error("a damaged key was accepted")
	}
}

func parse(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatal("no PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T, dir string) (contents []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		data, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		contents = append(contents, n+": "+string(data))
	}
	return contents
}

// X2: an authority that several open at once for the first time is made once.
func TestAnAuthorityIsMadeOnce(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		var group errgroup.Group
		made := make([][]byte, 8)
		for i := range made {
			group.Go(func() error {
				ca, err := pki.OpenCA(dir, "space")
				if err == nil {
					made[i] = ca.PEM()
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		for _, pem := range made[1:] {
			if !bytes.Equal(pem, made[0]) {
				t.Fatal("two authorities were made")
			}
		}
	}
}
