// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/vcluster/pki"
)

// That a certificate was good says nothing of another certificate, another
// time, or another CA.
func TestOnlyWhatWasVerifiedIsRemembered(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	newCA := func() *pki.CA {
		ca, err := pki.OpenCAWithClock(t.TempDir(), "space", clock)
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	ca := newCA()
	trusted := ca
	judged := 0
	known := RememberCertificates(
		func() (x509.VerifyOptions, bool) { return ClientCA{trusted}.VerifyOptions() },
		authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) { judged++; return nil, false, nil }),
	)
	present := func(pair pki.Pair, err error) *http.Request {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		c, err := pair.TLS()
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}}
	}
	ask := func(why string, r *http.Request, want string) {
		t.Helper()
		judged = 0
		as, ok, err := known.AuthenticateRequest(r)
		if err != nil || ok != (want != "") || ok && as.User.GetName() != want {
			t.Fatalf("%s: known as %v, %v, %v", why, as, ok, err)
		}
		if ok && !slices.Contains(as.User.GetGroups(), user.AllAuthenticated) {
			t.Fatalf("%s: in groups %v only", why, as.User.GetGroups())
		}
		if upstream := judged == 1; upstream == ok {
			t.Fatalf("%s: upstream asked: %v", why, upstream)
		}
	}
	mary := present(ca.Client("mary", []string{"staff"}))
	ask("the first time", mary, "mary")
	ask("again", mary, "mary")
	ask("another certificate", present(ca.Client("john", nil)), "john")
	ask("a server's", present(ca.Server("mary")), "")
	ask("of another CA", present(newCA().Client("mary", nil)), "")
	ask("none", &http.Request{TLS: &tls.ConnectionState{}}, "")
	ask("no TLS", &http.Request{}, "")

	trusted = newCA()
	ask("another CA is trusted now", mary, "")
	trusted = ca
	ask("the first is again", mary, "mary")
	at := clock.Now()
	clock.SetTime(mary.TLS.PeerCertificates[0].NotAfter.Add(time.Second))
	ask("it has ended", mary, "")
	clock.SetTime(at)
	ask("the clock was put back", mary, "mary")
	clock.SetTime(mary.TLS.PeerCertificates[0].NotBefore.Add(-time.Second))
	ask("it has not begun", mary, "")
}
