// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package authn_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/gateway/authn"
	"github.com/berth-dev/berth/identity"
)

// authority signs client certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) file() string {
	a.t.Helper()
	return write(a.t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})))
}

// request is one with a client certificate of a subject.
func (a *authority) request(subject pkix.Name) *http.Request {
	cert, _ := a.sign(&x509.Certificate{Subject: subject})
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
	return r
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, files authn.Files) *authn.Authenticator {
	t.Helper()
	a, err := authn.New(files, func(tenant string) bool { return tenant == "solar" }, klog.Background())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func bearing(token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// text is a short form of who somebody is.
func text(who *identity.Identity, err error) string {
	switch {
	case err != nil:
		return "refused: " + err.Error()
	case who == nil:
		return "nobody"
	}
	return fmt.Sprintf("%s of %s in %s", who.Name, who.Tenant, strings.Join(who.Groups, "+"))
}

// A1: the subject of a certificate says which tenant a user is of, and odd subjects are nobody's.
func TestCertificatesSayWhoseTheyAre(t *testing.T) {
	ca := newAuthority(t)
	a := open(t, authn.Files{ClientCA: ca.file()})
	for reason, c := range map[string]struct {
		subject pkix.Name
		want    string // begins with this
	}{
		"an organization":           {pkix.Name{CommonName: "alice", Organization: []string{"tenant:solar"}, OrganizationalUnit: []string{"app1", "app2"}}, "alice of solar in app1+app2"},
		"beside others":             {pkix.Name{CommonName: "alice", Organization: []string{"x", "tenant:solar"}}, "alice of solar in "},
		"the common name":           {pkix.Name{CommonName: "solar:demo", Organization: []string{"app1", "app2"}}, "solar:demo of solar in app1+app2"},
		"more than one colon":       {pkix.Name{CommonName: "solar:demo:x"}, "solar:demo:x of solar in "},
		"a system user":             {pkix.Name{CommonName: "root", Organization: []string{"tenant:system"}, OrganizationalUnit: []string{"system:masters"}}, "root of system in system:masters"},
		"a component of Kubernetes": {pkix.Name{CommonName: "system:kube-proxy"}, "system:kube-proxy of system in "},
		"neither":                   {pkix.Name{CommonName: "alice", Organization: []string{"app1"}}, "refused: the subject"},
		"an empty tenant":           {pkix.Name{CommonName: "alice", Organization: []string{"tenant:"}}, "refused: the subject"},
		"an empty one, and a CN":    {pkix.Name{CommonName: "solar:alice", Organization: []string{"tenant:"}}, "refused: the subject"},
		"an empty one in the CN":    {pkix.Name{CommonName: ":alice"}, "refused: the subject"},
		"no user":                   {pkix.Name{Organization: []string{"tenant:solar"}}, "refused: the subject"},
		"two tenants":               {pkix.Name{CommonName: "alice", Organization: []string{"tenant:solar", "tenant:system"}}, "refused: the subject of your certificate has more than one"},
		"the same twice":            {pkix.Name{CommonName: "alice", Organization: []string{"tenant:solar", "tenant:solar"}}, "refused: the subject of your certificate has more than one"},
		"an unknown tenant":         {pkix.Name{CommonName: "alice", Organization: []string{"tenant:mars"}}, "refused: your credential names the tenant mars, which has no space"},
		"upper case":                {pkix.Name{CommonName: "alice", Organization: []string{"tenant:Solar"}}, `refused: your credential names the tenant "Solar"`},
		"a NUL":                     {pkix.Name{CommonName: "alice", Organization: []string{"tenant:system\x00"}}, `refused: your credential names the tenant "system\x00"`},
		"a look-alike":              {pkix.Name{CommonName: "alice", Organization: []string{"tenant:ѕystem"}}, "refused: your credential names the tenant"},
		"a space":                   {pkix.Name{CommonName: "alice", Organization: []string{"tenant: system"}}, "refused: your credential names the tenant"},
		"a prefix in upper case":    {pkix.Name{CommonName: "alice", Organization: []string{"Tenant:solar"}}, "refused: the subject"},
		"a group of Kubernetes":     {pkix.Name{CommonName: "alice", Organization: []string{"tenant:solar"}, OrganizationalUnit: []string{"system:masters"}}, "refused: your credential names the user or group"},
		"a user of Kubernetes":      {pkix.Name{CommonName: "system:admin", Organization: []string{"tenant:solar"}}, "refused: your credential names the user or group"},
		"a system user of Berth":    {pkix.Name{CommonName: "berth:host:serviceaccount:a:b", Organization: []string{"tenant:system"}}, "refused: your credential names the user or group"},
		"a user of Berth":           {pkix.Name{CommonName: "berth:host:serviceaccount:a:b", Organization: []string{"tenant:solar"}}, "refused: your credential names the user or group"},
	} {
		r := ca.request(c.subject)
		for range 2 { // also once it is remembered
			if got := text(a.Identify(r)); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s: %s; want %s", reason, got, c.want)
			}
		}
	}
	if got := text(a.Identify(newAuthority(t).request(pkix.Name{CommonName: "alice", Organization: []string{"tenant:solar"}}))); got != "nobody" {
		t.Errorf("of another CA: %s", got)
	}
	if got := text(a.Identify(httptest.NewRequest(http.MethodGet, "/", nil))); got != "nobody" {
		t.Errorf("without a certificate: %s", got)
	}
}

// A CA that is added to the file is trusted, and one that is removed is not any more, also for certificates that were known.
func TestCAsAreReadAgain(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	path := before.file()
	a := open(t, authn.Files{ClientCA: path})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	alice := pkix.Name{CommonName: "alice", Organization: []string{"tenant:solar"}}
	old, other := before.request(alice), after.request(alice)
	if got := text(a.Identify(old)); got != "alice of solar in " {
		t.Fatalf("at first: %s", got)
	}
	data, err := os.ReadFile(after.file())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for text(a.Identify(other)) != "alice of solar in " {
		select {
		case <-t.Context().Done():
			t.Fatal("the CA that was added isn't trusted")
		case <-time.After(20 * time.Millisecond):
		}
	}
	if got := text(a.Identify(old)); got != "nobody" {
		t.Errorf("of the CA that was removed: %s", got)
	}
}

// A2: lines of the files say which tenant a user is of.
func TestFilesSayWhoseTokensAndPasswordsAre(t *testing.T) {
	const lines = `one,alice,u1,"app1,app2",,solar
two,bob,u2,,solar
three,carol,u3,app1,other,more,,solar
four,root,u4,system:masters
five,old,u5
six,spare,u6,app1,
seven,dave,u7,,,solar
eight,gone,u8,,mars
"nine, and more",erin,u9,,solar
`
	a := open(t, authn.Files{Tokens: write(t, lines), Passwords: write(t, lines)})
	for token, want := range map[string]string{
		"one": "alice of solar in app1+app2", "two": "bob of solar in ", "three": "carol of solar in app1", "four": "root of system in system:masters",
		"five": "old of system in ", "six": "spare of system in app1", "seven": "dave of solar in ",
		"eight":          "refused: your credential names the tenant mars, which has no space; ask your admin to create the tenant, or for another credential",
		"nine, and more": "erin of solar in ", "ten": "nobody", "": "nobody", "ONE": "nobody",
	} {
		if got := text(a.Identify(bearing(token))); got != want {
			t.Errorf("with the token %q: %s; want %s", token, got, want)
		}
	}
	for login, want := range map[[2]string]string{
		{"alice", "one"}: "alice of solar in app1+app2", {"alice", "two"}: "nobody", {"", "one"}: "nobody", {"bob", ""}: "nobody", {"root", "four"}: "root of system in system:masters",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth(login[0], login[1])
		if got := text(a.Identify(r)); got != want {
			t.Errorf("with the password of %v: %s; want %s", login, got, want)
		}
	}
	who, _ := a.Identify(bearing("one"))
	if who.Proof != identity.TokenFile || who.UID != "u1" || !slices.Equal(who.User().Groups, []string{"system:authenticated", "app1", "app2"}) {
		t.Errorf("it is %+v", who)
	}
	ca := newAuthority(t)
	r := ca.request(pkix.Name{CommonName: "mallory"})
	r.Header.Set("Authorization", "Bearer four")
	if got := text(a.Identify(r)); !strings.HasPrefix(got, "refused: you have a client certificate that the platform doesn't know, and a token") {
		t.Errorf("with a certificate of somebody's, and a token: %s", got)
	}
	r.Header.Set("Authorization", "Bearer of-a-space")
	if got := text(a.Identify(r)); got != "nobody" {
		t.Errorf("with a certificate and a token of somebody's: %s", got)
	}
	for token, want := range map[string]string{"four": "refused: you have a credential of the platform", "of-a-space": "nobody"} {
		if got := text(a.Refuse(bearing(token))); !strings.HasPrefix(got, want) {
			t.Errorf("where none is accepted, with the token %s: %s; want %s", token, got, want)
		}
	}
}

// A2: what is wrong with a file is said at the start, with the line and without a credential.
func TestWrongFilesAreRefused(t *testing.T) {
	for lines, want := range map[string]string{
		"a,alice,u,,solar\nsecret,bob,u,g,,": "line 2 has the tenant \"\" behind ,,",
		"secret,bob,u,,":                     "line 1 has the tenant \"\" behind ,,",
		"secret,bob,u,g,,Solar":              "line 1 has the tenant \"Solar\" behind ,,",
		"secret,bob":                         "line 1 has 2 fields, and must have 3 at least",
		"secret,bob,,solar":                  "line 1 has no UID",
		"secret,,u,,solar":                   "line 1 has no user",
		",bob,u,,solar":                      "line 1 has no credential",
		"secret,bob,u\nsecret,bob,v,,solar":  "line 2 has the credential of a line before it",
		"a,bob,u,\"g":                        "parse error",
	} {
		for _, files := range []authn.Files{{Tokens: write(t, lines)}, {Passwords: write(t, lines)}} {
			_, err := authn.New(files, func(string) bool { return true }, klog.Background())
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%q: %v; want %s", lines, err, want)
			}
		}
	}
	for flag, files := range map[string]authn.Files{
		"client-ca-file":  {ClientCA: write(t, "no certificate")},
		"token-auth-file": {Tokens: filepath.Join(t.TempDir(), "none")},
		"basic-auth-file": {Passwords: filepath.Join(t.TempDir(), "none")},
	} {
		if _, err := authn.New(files, nil, klog.Background()); err == nil || !strings.HasPrefix(err.Error(), flag+"=") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// A file that changes is read again. While it is wrong, what was read before holds.
func TestFilesAreReadAgain(t *testing.T) {
	path := write(t, "one,alice,u1,,solar\n")
	a := running(t, authn.Files{Tokens: path})
	until := func(token, want string) {
		t.Helper()
		for got := ""; got != want; got = text(a.Identify(bearing(token))) {
			select {
			case <-t.Context().Done():
				t.Fatalf("with the token %s: %s; want %s", token, got, want)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	for _, change := range []struct{ lines, one, two string }{
		{"two,bob,u2,,solar\n", "nobody", "bob of solar in "},
		{"one,alice,u1,,solar\ntwo,bobby,u2,,solar\n", "alice of solar in ", "bobby of solar in "},
	} {
		if err := os.WriteFile(path, []byte(change.lines), 0o600); err != nil {
			t.Fatal(err)
		}
		until("two", change.two)
		until("one", change.one)
	}
	if err := os.WriteFile(path, []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		if got := text(a.Identify(bearing("one"))); got != "alice of solar in " {
			t.Fatalf("while the file is wrong: %s", got)
		}
	}
}
