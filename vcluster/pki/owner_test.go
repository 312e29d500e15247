// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/vcluster/pki"
)

func leafOf(t *testing.T, p pki.Pair) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(p.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// X2
func TestAClientCertificateNamesItsOwner(t *testing.T) {
	ca, err := pki.OpenCA(t.TempDir(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, owner := range []pki.Owner{
		{"User", "alice"}, {"Group", "oidc:org:devops:a"}, {"ServiceAccount", "system:serviceaccount:a:b"}, {"User", "a/b c%2F?x=#y@example.com"}, {"User", "Jürgen"}, {"User", "../x"},
	} {
		pair, err := ca.ClientForOwner(time.Hour, owner, "somebody", []string{"berth.dev"})
		if err != nil {
			t.Fatal(err)
		}
		cert := leafOf(t, pair)
		if diff := cmp.Diff([]pki.Owner{owner}, pki.OwnersOf(cert)); diff != "" {
			t.Error(diff)
		}
		if cert.Subject.CommonName != "somebody" || len(cert.Subject.Organization) != 1 {
			t.Errorf("the subject is %v", cert.Subject)
		}
		renewed, err := pki.Kubeconfig("demo", "https://berth.example", ca.PEM(), "somebody", pair)
		if err != nil || len(renewed) == 0 {
			t.Fatal(err)
		}
	}
	pair, err := ca.Client("alice", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := pki.OwnersOf(leafOf(t, pair)); len(got) != 0 {
		t.Errorf("a certificate of nobody's is of %v", got)
	}
	if _, err := ca.ClientForOwner(time.Hour, pki.Owner{Kind: "User"}, "alice", nil); err == nil {
		t.Error("an owner without a name has a certificate")
	}
}

// A certificate whose owner can't be read is of nobody who owns anything.
func TestHostileURIsNameNoOwner(t *testing.T) {
	for _, text := range []string{"berth://other/User/alice", "BERTH://owner", "berth:User/alice", "berth://owner/alice"} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]pki.Owner{{}}, pki.OwnersOf(&x509.Certificate{URIs: []*url.URL{u}})); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}
