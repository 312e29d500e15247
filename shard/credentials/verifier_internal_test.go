// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/client-go/util/keyutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/vcluster/pki"
)

// stranger asks with a token, from an address.
func stranger(ctx context.Context, token, from string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.RemoteAddr = from + ":1"
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// madeUp is a token in the form of a service account's, whose signature is of nobody.
func madeUp(i int) string {
	return fmt.Sprintf("eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4In0.%s", strings.Repeat(string(rune('A'+i%26)), 40)+fmt.Sprintf("%046d", i))
}

func testCredentials(t *testing.T) (c *Verifier, dir string, clock *clocktesting.FakeClock) {
	t.Helper()
	dir, clock = t.TempDir(), clocktesting.NewFakeClock(time.Now())
	if _, err := pki.OpenCA(filepath.Join(dir, "demo", "pki"), "demo"); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.ServiceAccountKey(filepath.Join(dir, "demo", "pki")); err != nil {
		t.Fatal(err)
	}
	c, err := New(func(space string) string { return filepath.Join(dir, space) }, 0, clock)
	if err != nil {
		t.Fatal(err)
	}
	return c, dir, clock
}

// S7: what was refused is refused again without a look at its signature, for a space that there is and for one that there is
// not; and what is remembered of it is bounded.
func TestHostileCredentialsAreCheckedOnce(t *testing.T) {
	c, _, _ := testCredentials(t)
	for _, space := range []string{"demo", "nobody"} {
		if good, err := c.Verify(space, stranger(t.Context(), madeUp(1), "192.0.2.1")); good || err != nil {
			t.Fatalf("%s: %t, %v", space, good, err)
		}
	}
	// Nothing is checked any more.
	all := slots(c)
	if err := c.checks.Acquire(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, space := range []string{"demo", "nobody"} {
		if good, err := c.Verify(space, stranger(ended, madeUp(1), "192.0.2.1")); good || err != nil {
			t.Errorf("%s, again: %t, %v", space, good, err)
		}
		if _, err := c.Verify(space, stranger(ended, madeUp(2), "192.0.2.1")); !errors.Is(err, ErrBusy) {
			t.Errorf("%s, another credential: %v", space, err)
		}
	}
	c.checks.Release(all)
	for i := range rememberedRefusals + 100 {
		if good, err := c.Verify("demo", stranger(t.Context(), madeUp(i), "192.0.2.1")); good || err != nil {
			t.Fatal(good, err)
		}
	}
	if n := c.refused.Len(); n > rememberedRefusals {
		t.Errorf("%d refusals are remembered", n)
	}
}

// slots is how many checks there are at once.
func slots(c *Verifier) (n int64) {
	for c.checks.TryAcquire(1) {
		n++
	}
	c.checks.Release(n)
	return n
}

// D5: a client that sends many requests with one credential at once, as to a space that has held them, gets an answer to each.
func TestRequestsWithOneCredentialAreOneCheck(t *testing.T) {
	c, dir, _ := testCredentials(t)
	all := slots(c)
	if err := c.checks.Acquire(t.Context(), all); err != nil { // until all of them wait
		t.Fatal(err)
	}
	const requests = 4 * maxChecksPerClient
	var begun atomic.Int32
	ended := make(chan error, requests)
	one := clientOf(t, dir, "demo")
	for range requests {
		r := one.Clone(t.Context())
		go func() {
			begun.Add(1)
			good, err := c.Verify("demo", r)
			if err == nil && !good {
				err = errors.New("it is refused")
			}
			ended <- err
		}()
	}
	for begun.Load() < requests || c.waiting.Held() == 0 {
		runtime.Gosched()
	}
	c.checks.Release(all)
	for range requests {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// S7, L3: however many credentials strangers send, few are checked at once, few of one client wait, and those who are known
// wait for nobody.
func TestHostileCredentialsDoNotKeepThoseWhoAreKnownWaiting(t *testing.T) {
	c, dir, clock := testCredentials(t)
	known := clientOf(t, dir, "demo")
	if good, err := c.Verify("demo", known); !good || err != nil {
		t.Fatalf("a credential of the space: %t, %v", good, err)
	}
	all := slots(c)
	if err := c.checks.Acquire(t.Context(), all); err != nil { // as if they took for ever
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, maxChecksPerClient)
	for i := range maxChecksPerClient {
		go func() {
			_, err := c.Verify("demo", stranger(ctx, madeUp(i), "2001:db8::1"))
			ended <- err
		}()
	}
	for c.waiting.Held() < maxChecksPerClient {
		runtime.Gosched()
	}
	// It is of the same network, and would wait without end if it waited.
	if _, err := c.Verify("demo", stranger(t.Context(), madeUp(99), "2001:db8::ffff")); !errors.Is(err, ErrBusy) {
		t.Fatalf("one more: %v", err)
	}
	if good, err := c.Verify("demo", known); !good || err != nil {
		t.Errorf("one who is known waits for strangers: %t, %v", good, err)
	}
	cancel()
	for range maxChecksPerClient {
		if err := <-ended; !errors.Is(err, ErrBusy) {
			t.Errorf("one who waited: %v", err)
		}
	}
	c.checks.Release(all)
	clock.Step(2 * 365 * 24 * time.Hour)
	if good, err := c.Verify("demo", known); good || err != nil {
		t.Errorf("a certificate that has ended: %t, %v", good, err)
	}
}

// clientOf is a request with a certificate of a space.
func clientOf(t *testing.T, dir, space string) *http.Request {
	t.Helper()
	ca, err := pki.OpenCA(filepath.Join(dir, space, "pki"), space)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Client("admin", nil)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	return r
}

// A name never leads out of the spaces' directory, and keys that were renewed are read.
func TestCredentialsFollowTheSpacesFiles(t *testing.T) {
	c, dir, _ := testCredentials(t)
	if err := os.Rename(filepath.Join(dir, "demo", "pki"), filepath.Join(dir, "pki")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "pki"), filepath.Join(dir, "demo", "pki")); err != nil {
		t.Fatal(err)
	}
	known := clientOf(t, dir, "demo")
	for space, want := range map[string]bool{"demo": true, ".": false, "..": false, "./demo": false, "": false, "Demo": false} {
		if good, err := c.Verify(space, known); good != want || err != nil {
			t.Errorf("%q: %t, %v", space, good, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "demo")); err != nil {
		t.Fatal(err)
	}
	c.Forget("demo")
	if good, err := c.Verify("demo", known); good || err != nil {
		t.Errorf("of a space that is gone: %t, %v", good, err)
	}
	if _, err := pki.OpenCA(filepath.Join(dir, "demo", "pki"), "demo"); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.ServiceAccountKey(filepath.Join(dir, "demo", "pki")); err != nil {
		t.Fatal(err)
	}
	if good, err := c.Verify("demo", clientOf(t, dir, "demo")); !good || err != nil {
		t.Errorf("with new keys: %t, %v", good, err)
	}
}

// U2: a token names its space, whoever made it; what is no token names none.
func TestATokenNamesItsSpace(t *testing.T) {
	of := func(payload string) string {
		r := stranger(t.Context(), "e30."+base64.RawURLEncoding.EncodeToString([]byte(payload))+".c2ln", "192.0.2.1")
		return SpaceOf(r)
	}
	for payload, want := range map[string]string{
		`{"iss":"` + pki.Issuer("demo") + `"}`: "demo", `{"iss":"https://kubernetes.default.svc.cluster.local"}`: "", `{"iss":["demo"]}`: "", `{}`: "", `demo`: "",
		`{"iss":"https://elsewhere.example/spaces/demo"}`: "", `{"iss":"` + strings.Repeat("x", maxToken) + `"}`: "",
	} {
		if got := of(payload); got != want {
			t.Errorf("%.60s is of %q, want %q", payload, got, want)
		}
	}
	if got := SpaceOf(stranger(t.Context(), madeUp(1), "192.0.2.1")); got != "" {
		t.Errorf("a token without an issuer is of %q", got)
	}
}

// X2: once a space's keys are rotated, what they signed is of nobody, and tokens of the key before are good for the
// overlap.
func TestRotatedCredentialsAreRefused(t *testing.T) {
	v, dir, clock := testCredentials(t)
	keys := filepath.Join(dir, "demo", "pki")
	bearing := func(token string) *http.Request { return stranger(t.Context(), token, "192.0.2.1") }
	certificate, token := clientOf(t, dir, "demo"), bearing(tokenOf(t, dir, "demo"))
	ask := func(when string, r *http.Request, want bool) {
		t.Helper()
		if good, err := v.Verify("demo", r); good != want || err != nil {
			t.Errorf("%s: %t, %v", when, good, err)
		}
	}
	ask("a certificate", certificate, true)
	ask("a token", token, true)
	ca, err := pki.OpenCA(keys, "demo")
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Rotate(); err != nil {
		t.Fatal(err)
	}
	v.Forget("demo")
	ask("a revoked certificate", certificate, false)
	ask("a certificate of the new authority", clientOf(t, dir, "demo"), true)
	ask("a token, when the authority is rotated", token, true)
	if err := pki.RotateServiceAccountKey(keys, clock.Now(), time.Hour); err != nil {
		t.Fatal(err)
	}
	v.Forget("demo")
	ask("a token of the key before", token, true)
	ask("a token of the new key", bearing(tokenOf(t, dir, "demo")), true)
	clock.Step(time.Hour)
	ask("a token of the key before, after the overlap", token, false)
	ask("a token of the new key, after the overlap", bearing(tokenOf(t, dir, "demo")), true)
}

// RFC 7235, section 2.1: the name of a scheme has no case.
func TestTheBearerSchemeHasNoCase(t *testing.T) {
	for header, want := range map[string]string{
		"Bearer abc": "abc", "bearer abc": "abc", "BEARER abc": "abc", " bEaReR   abc ": "abc", "Bearer abc def": "abc",
		"Bearer": "", "Bearer ": "", "Bearerabc": "", "Basic abc": "", "": "",
	} {
		r := stranger(t.Context(), "", "192.0.2.1")
		r.Header.Set("Authorization", header)
		if got := bearer(r); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
	v, dir, _ := testCredentials(t)
	r := stranger(t.Context(), "", "192.0.2.1")
	r.Header.Set("Authorization", "bearer "+tokenOf(t, dir, "demo"))
	if good, err := v.Verify("demo", r); !good || err != nil {
		t.Errorf("a token in lower case's scheme: %t, %v", good, err)
	}
}

// tokenOf is a service account's token of a space.
func tokenOf(t *testing.T, dir, space string) string {
	t.Helper()
	private, err := keyutil.PrivateKeyFromFile(filepath.Join(dir, space, "pki", "service-account.key"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: private}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(jwt.Claims{Subject: "system:serviceaccount:default:default"}).CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// L3: the keys of all spaces that are awake are remembered, and of a bounded number of others, whoever asks.
func TestHostileTheSpacesWhoseKeysAreRememberedAreBounded(t *testing.T) {
	dir := t.TempDir()
	if _, err := pki.OpenCA(filepath.Join(dir, "pki"), "demo"); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.ServiceAccountKey(filepath.Join(dir, "pki")); err != nil {
		t.Fatal(err)
	}
	for spacesMax, want := range map[int]int{0: 256, 100: 256, 150: 300, 1 << 30: mostSpaces} {
		v, err := New(func(string) string { return dir }, spacesMax, clocktesting.NewFakeClock(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		for i := range want + 10 {
			if good, err := v.Verify(fmt.Sprintf("space-%d", i), stranger(t.Context(), madeUp(1), "192.0.2.1")); good || err != nil {
				t.Fatal(good, err)
			}
		}
		if got := v.spaces.Len(); got != want {
			t.Errorf("with %d spaces awake the keys of %d are remembered, want %d", spacesMax, got, want)
		}
	}
}

// FuzzCredentials: nothing that a stranger sends is a credential, or ends the process.
func FuzzCredentials(f *testing.F) {
	f.Add(madeUp(1), []byte{0x30, 0x03, 0x02, 0x01, 0x00})
	f.Add("eyJhbGciOiJub25lIn0.eyJpc3MiOiJrdWJlIn0.", []byte{})
	dir := f.TempDir()
	if _, err := pki.OpenCA(filepath.Join(dir, "demo", "pki"), "demo"); err != nil {
		f.Fatal(err)
	}
	if _, err := pki.ServiceAccountKey(filepath.Join(dir, "demo", "pki")); err != nil {
		f.Fatal(err)
	}
	c, err := New(func(space string) string { return filepath.Join(dir, space) }, 0, clocktesting.NewFakeClock(time.Now()))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, token string, der []byte) {
		r := stranger(t.Context(), token, "192.0.2.1")
		if cert, err := x509.ParseCertificate(der); err == nil {
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
		}
		if good, err := c.Verify("demo", r); good || err != nil {
			t.Errorf("%t, %v", good, err)
		}
	})
}
