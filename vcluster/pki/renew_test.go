// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/vcluster/pki"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

func openCA(t *testing.T, dir string, clock *clocktesting.FakePassiveClock) *pki.CA {
	t.Helper()
	ca, err := pki.OpenCAWithClock(dir, "one", clock)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func count(t *testing.T, ca *pki.CA) int {
	t.Helper()
	certs, err := certutil.ParseCertsPEM(ca.PEM())
	if err != nil {
		t.Fatal(err)
	}
	return len(certs)
}

// server serves by TLS at the clock's time, and knows clients of the authority.
func server(t *testing.T, ca *pki.CA, clock *clocktesting.FakePassiveClock) string {
	t.Helper()
	certificate, err := ca.Serving("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := r.TLS.PeerCertificates[0].Verify(ca.Verify(x509.ExtKeyUsageClientAuth)); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	// Not StartTLS, which brings a certificate of its own.
	s.Listener = tls.NewListener(s.Listener, &tls.Config{
		GetCertificate: certificate.Get, ClientAuth: tls.RequireAnyClientCert, Time: clock.Now, MinVersion: tls.VersionTLS12,
	})
	s.Start()
	t.Cleanup(s.Close)
	return strings.Replace(s.URL, "http://", "https://", 1)
}

// client is one that holds a kubeconfig, at the clock's time.
func client(t *testing.T, kubeconfig []byte, clock *clocktesting.FakePassiveClock) *http.Client {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.Pair{Cert: config.CertData, Key: config.KeyData}.TLS()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, Certificates: []tls.Certificate{pair}, Time: clock.Now, MinVersion: tls.VersionTLS12,
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

func ask(c *http.Client, url string) (string, error) {
	resp, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// X4: through forty years in one process, a client whose kubeconfig is renewed
// now and then is served; so is one that holds a copy for half a day; and a
// connection that stands stays.
func TestNothingEndsInAProcessThatRunsForDecades(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	ca := openCA(t, t.TempDir(), clock)
	url := server(t, ca, clock)
	pair, err := ca.Client("admin", []string{pki.AdminGroup})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := pki.Kubeconfig("one", url, ca.PEM(), "admin", pair)
	if err != nil {
		t.Fatal(err)
	}
	first, standing := ca.PEM(), client(t, kept, clock)
	if got, err := ask(standing, url); err != nil || got != "admin" {
		t.Fatalf("got %q (%v)", got, err)
	}
	for end := clock.Now().Add(40 * year); clock.Now().Before(end); clock.SetTime(clock.Now().Add(10 * day)) {
		if kept, err = pki.RenewKubeconfig(kept, "", ca, ca.PEM()); err != nil {
			t.Fatal(err)
		}
		for _, who := range []string{"the kept", "the copied"} {
			c := client(t, kept, clock)
			if got, err := ask(c, url); err != nil || got != "admin" {
				t.Fatalf("%s: on %s got %q (%v)", who, clock.Now().Format(time.DateOnly), got, err)
			}
			c.CloseIdleConnections()
			clock.SetTime(clock.Now().Add(pki.ClientLifetime / 2))
		}
		if n := count(t, ca); n > 2 {
			t.Fatalf("%d authorities are trusted on %s", n, clock.Now().Format(time.DateOnly))
		}
	}
	if bytes.Contains(ca.PEM(), first) {
		t.Error("the first authority is trusted for ever")
	}
	if kept, err = pki.RenewKubeconfig(kept, "", ca, ca.PEM()); err != nil {
		t.Fatal(err)
	}
	if got, err := ask(client(t, kept, clock), url); err != nil || got != "admin" {
		t.Errorf("got %q (%v)", got, err)
	}
}

// The next authority is published before it signs, for as long as a client's
// certificate lives, and the old one is trusted after.
func TestAuthoritiesOverlap(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	dir := t.TempDir()
	ca := openCA(t, dir, clock)
	old := parse(t, ca.PEM())
	issuedBy := func() *x509.Certificate {
		t.Helper()
		pair, err := ca.Client("x", nil)
		if err != nil {
			t.Fatal(err)
		}
		certs, err := certutil.ParseCertsPEM(ca.PEM())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range certs {
			if parse(t, pair.Cert).CheckSignatureFrom(c) == nil {
				return c
			}
		}
		t.Fatal("issued by an authority that is not trusted")
		return nil
	}
	for _, step := range []struct {
		reason  string
		years   float64
		trusted int
		new     bool
	}{
		{"it is young", 1, 1, false},
		{"before its time", 6.9, 1, false},
		{"published", 7.1, 2, false},
		{"published for as long as a client lives", 7.9, 2, false},
		{"the next one signs", 8.1, 2, true},
		{"what the old one signed is trusted", 9.9, 2, true},
		{"it has ended", 10.1, 1, true},
	} {
		clock.SetTime(old.NotBefore.Add(time.Duration(step.years * float64(year))))
		if n := count(t, ca); n != step.trusted {
			t.Errorf("%s: %d authorities are trusted, want %d", step.reason, n, step.trusted)
		}
		if signer := issuedBy(); signer.Equal(old) == step.new {
			t.Errorf("%s: signed by the authority of %s", step.reason, signer.NotBefore)
		}
		// A restart, and another process, find the same.
		if again := openCA(t, dir, clock); !bytes.Equal(again.PEM(), ca.PEM()) {
			t.Errorf("%s: opened again it is another", step.reason)
		}
	}
}

// Two that have the same authority open, as a running space and who renews its
// kubeconfig, end up with the same next one.
func TestTwoWhoRenewAnAuthorityAgree(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	dir := t.TempDir()
	one, two := openCA(t, dir, clock), openCA(t, dir, clock)
	for range 6 {
		clock.SetTime(clock.Now().Add(3 * year))
		done := make(chan []byte)
		for _, ca := range []*pki.CA{one, two} {
			go func() { done <- ca.PEM() }()
		}
		if a, b := <-done, <-done; !bytes.Equal(a, b) {
			t.Fatal("they trust different authorities")
		}
		pair, err := one.Client("x", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(t, pair.Cert).Verify(two.Verify(x509.ExtKeyUsageClientAuth)); err != nil {
			t.Errorf("one does not know what the other issued: %v", err)
		}
	}
}

// After decades on a shelf, too.
func TestAnAuthorityThatHasEndedIsReplaced(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	dir := t.TempDir()
	openCA(t, dir, clock)
	clock.SetTime(clock.Now().Add(25 * year))
	ca := openCA(t, dir, clock)
	pair, err := ca.Client("x", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parse(t, pair.Cert).Verify(ca.Verify(x509.ExtKeyUsageClientAuth)); err != nil {
		t.Error(err)
	}
	if n := count(t, ca); n != 1 {
		t.Errorf("%d authorities are trusted", n)
	}
}

// A disk that takes no files leaves what there is in use, and is told.
func TestAnAuthorityThatCannotBeRenewedIsUsedOn(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	dir := t.TempDir()
	ca := openCA(t, dir, clock)
	if err := os.Mkdir(filepath.Join(dir, "ca-next.key"), 0o700); err != nil { // root may write anywhere
		t.Fatal(err)
	}
	clock.SetTime(clock.Now().Add(9 * year))
	if err := ca.Check(); err == nil {
		t.Error("nothing is told")
	}
	if _, err := ca.Client("x", nil); err != nil {
		t.Errorf("nothing is issued: %v", err)
	}
	serving, err := ca.Serving("berth.example")
	if err != nil {
		t.Fatal(err)
	}
	clock.SetTime(clock.Now().Add(2 * year))
	if _, err := serving.Get(nil); err == nil {
		t.Error("a certificate that has ended is served")
	}
	if err := os.Remove(filepath.Join(dir, "ca-next.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := serving.Get(nil); err != nil {
		t.Errorf("mended, it is not renewed: %v", err)
	}
}

func TestAKubeconfigIsRenewedOnlyWhenItMust(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	ca, foreign, serving := openCA(t, t.TempDir(), clock), openCA(t, t.TempDir(), clock), openCA(t, t.TempDir(), clock)
	kubeconfig := func(groups ...string) []byte {
		t.Helper()
		pair, err := ca.Client("jane", groups)
		if err != nil {
			t.Fatal(err)
		}
		made, err := pki.Kubeconfig("demo", "https://berth.example/spaces/demo", serving.PEM(), "jane", pair)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	plain, admin, master := kubeconfig("a", "b"), kubeconfig("a", pki.AdminGroup), kubeconfig("a", "system:masters")
	for reason, test := range map[string]struct {
		old     []byte
		after   time.Duration
		clients *pki.CA
		serving []byte
		same    bool
		groups  []string
	}{
		"it is new":                            {plain, 0, ca, serving.PEM(), true, []string{"a", "b"}},
		"it is young":                          {plain, 11 * time.Hour, ca, serving.PEM(), true, []string{"a", "b"}},
		"it has lived half its life":           {plain, 13 * time.Hour, ca, serving.PEM(), false, []string{"a", "b"}},
		"it has ended":                         {plain, 3 * year, ca, serving.PEM(), false, []string{"a", "b"}},
		"the space's authority is another":     {plain, 0, foreign, serving.PEM(), false, []string{"a", "b"}},
		"the port's authority has a successor": {plain, 0, ca, append(serving.PEM(), foreign.PEM()...), false, []string{"a", "b"}},
		"it is an admin's":                     {admin, 0, ca, serving.PEM(), true, []string{"a", pki.AdminGroup}},
		"it is an admin's of before":           {master, 0, ca, serving.PEM(), false, []string{"a", pki.AdminGroup}},
	} {
		t.Run(reason, func(t *testing.T) {
			begin := clock.Now()
			defer clock.SetTime(begin)
			clock.SetTime(begin.Add(test.after))
			got, err := pki.RenewKubeconfig(test.old, "", test.clients, test.serving)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(got, test.old) != test.same {
				t.Errorf("the same: %v, want %v", !test.same, test.same)
			}
			config, err := clientcmd.RESTConfigFromKubeConfig(got)
			if err != nil {
				t.Fatal(err)
			}
			cert := parse(t, config.CertData)
			if _, err := cert.Verify(test.clients.Verify(x509.ExtKeyUsageClientAuth)); err != nil {
				t.Error(err)
			}
			if cert.Subject.CommonName != "jane" || !slices.Equal(cert.Subject.Organization, test.groups) || config.Host != "https://berth.example/spaces/demo" ||
				!bytes.Equal(config.CAData, test.serving) {
				t.Errorf("it is %s at %s", cert.Subject, config.Host)
			}
		})
	}
	for _, odd := range []string{"", "no kubeconfig", "{}"} {
		if _, err := pki.RenewKubeconfig([]byte(odd), "", ca, serving.PEM()); err == nil {
			t.Errorf("%q was renewed", odd)
		}
	}
}
