// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hosttokens

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/testhost"
)

// O9: only the host proves an owner of the space, by a token for Berth, which the space doesn't get.
func TestTheHostProvesItsServiceAccounts(t *testing.T) {
	e := newEnv(t)
	good := e.token(t, "robot", "berth.dev")
	r := request(t.Context(), good, "192.0.2.1")
	verified, ok, err := e.Verify("solar", r)
	if !IsFor(r) || !ok || err != nil || identity.From(verified.Context()).Name != e.name("robot") || len(verified.Header["Authorization"]) > 0 {
		t.Fatalf("a good token: %v, %v, %v, %q", ok, err, identity.From(verified.Context()), verified.Header)
	}
	if r.Header.Get("Authorization") == "" || identity.From(r.Context()) != nil {
		t.Error("the request of the client was changed")
	}
	parts := strings.Split(good, ".")
	for reason, c := range map[string]struct {
		space, token string
		asks         bool // the host
	}{
		"another space":                    {"lunar", good, false},
		"no such space":                    {"none", good, false},
		"another owner's token":            {"solar", e.token(t, "moon", "berth.dev"), false},
		"a ServiceAccount without rights":  {"solar", e.token(t, "other", "berth.dev"), false},
		"a forged token":                   {"solar", e.forged(1), false},
		"another forged token":             {"solar", e.forged(2), false},
		"a signature of another token":     {"solar", parts[0] + "." + parts[1] + "." + strings.Split(e.token(t, "moon", "berth.dev"), ".")[2], false},
		"a key that the host doesn't have": {"solar", e.forgedWith(base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"x"}`)), 3), false},
		"no key":                           {"solar", e.forgedWith("eyJhbGciOiJSUzI1NiJ9", 4), false},
		"no signature":                     {"solar", e.forgedWith(base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)), 5), false},
	} {
		before := e.count()
		for range 2 {
			if ok, err := e.verify(t, c.space, c.token, client1); ok || err != nil {
				t.Errorf("%s: %v, %v", reason, ok, err)
			}
		}
		if asked := e.count() - before; asked != map[bool]int{true: 1}[c.asks] {
			t.Errorf("%s: the host was asked %d times", reason, asked)
		}
	}
	if ok, err := e.verify(t, "solar", e.token(t, "robot", "berth.dev", "another"), client1); !ok || err != nil {
		t.Errorf("a token with two audiences: %v, %v", ok, err)
	}
	for reason, token := range map[string]string{"the host's own audience": e.token(t, "robot"), "another audience": e.token(t, "robot", "berth"), "no token": "x.y.z"} {
		if r := request(t.Context(), token, "192.0.2.1"); IsFor(r) {
			t.Errorf("%s counts as a token for Berth", reason)
		} else if _, ok, _ := e.Verify("solar", r); ok {
			t.Errorf("%s is accepted", reason)
		}
	}
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	if IsFor(r) {
		t.Error("the token counts beside a client certificate")
	}
	e.clock.SetTime(e.clock.Now().Add(2 * time.Hour))
	before := e.count()
	if ok, err := e.verify(t, "solar", good, client1); ok || err != nil || e.count() != before {
		t.Errorf("an expired token: %v, %v; the host was asked %d times", ok, err, e.count()-before)
	}
}

// O9: a token is good no longer than its ServiceAccount, also for a request that has begun.
func TestRequestsEndWithTheirServiceAccount(t *testing.T) {
	e := newEnv(t)
	e.interval = 100 * time.Millisecond
	robot, moon := e.token(t, "robot", "berth.dev"), e.token(t, "moon", "berth.dev")
	ends, _, err := e.Verify("solar", request(t.Context(), robot, "192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	done, finish := context.WithCancel(t.Context())
	lasts, _, err := e.Verify("lunar", request(t.Context(), moon, "192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := e.Verify("lunar", request(done, moon, "192.0.2.1")); !ok || err != nil {
		t.Fatal(ok, err)
	}
	finish() // a request that has ended is not reviewed
	if err := e.host.CoreV1().ServiceAccounts(e.namespace).Delete(t.Context(), "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deleted := time.Now()
	testhost.Eventually(t, "the end of the request", func(context.Context) error {
		e.clock.SetTime(time.Now())
		if ends.Context().Err() == nil {
			return errors.New("it lasts")
		}
		return nil
	})
	if took := time.Since(deleted); took > 28*time.Second {
		t.Errorf("it ended after %s", took)
	}
	if ok, err := e.verify(t, "solar", robot, client1); ok || err != nil {
		t.Errorf("the token of a deleted ServiceAccount: %v, %v", ok, err)
	}
	if lasts.Context().Err() != nil {
		t.Error("the request of another ServiceAccount ended, too")
	}
	e.clock.SetTime(time.Now().Add(2 * time.Hour))
	testhost.Eventually(t, "the end of a request whose token has expired", func(context.Context) error {
		if lasts.Context().Err() == nil {
			return errors.New("it lasts")
		}
		return nil
	})
}

// O9: while the host doesn't answer, nobody gets in, no request ends, and no more than a few requests wait.
func TestWithoutTheHostNobodyGetsIn(t *testing.T) {
	e := newEnv(t)
	e.jwks.Store(http.StatusForbidden)
	e.interval = 50 * time.Millisecond
	good, known := e.token(t, "robot", "berth.dev"), e.token(t, "robot", "berth.dev")
	if ok, err := e.verify(t, "solar", known, client1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	lasts, ok, err := e.Verify("solar", request(t.Context(), good, "192.0.2.1"))
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	refuses := func(context.Context) error { return errors.New("it is down") }
	e.fail.Store(&refuses)
	e.clock.SetTime(e.clock.Now().Add(provenFor))
	before := e.count()
	for _, token := range []string{good, e.forged(1)} {
		if ok, err := e.verify(t, "solar", token, client1); ok || !errors.Is(err, ErrHost) {
			t.Errorf("%v, %v", ok, err)
		}
	}
	testhost.Eventually(t, "another review", func(context.Context) error {
		if e.count() < before+5 {
			return errors.New("the request that lasts is not reviewed")
		}
		return nil
	})
	if lasts.Context().Err() != nil {
		t.Error("a request that has begun ended")
	}

	hang := make(chan struct{})
	hangs := func(ctx context.Context) error {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("a review has no deadline")
		}
		<-hang
		return errors.New("too late")
	}
	e.fail.Store(&hangs)
	var waiting sync.WaitGroup
	var busy atomic.Int32
	for i := range 20 {
		waiting.Go(func() {
			if _, err := e.verify(t, "solar", e.forged(10+i), fmt.Sprintf("198.51.100.%d", i)); errors.Is(err, ErrBusy) {
				busy.Add(1)
			}
		})
	}
	testhost.Eventually(t, "answers to all but a few", func(context.Context) error {
		if n := busy.Load(); n != 20-maxReviewsPerSpace {
			return fmt.Errorf("%d are told to come again", n)
		}
		return nil
	})
	e.fail.Store(nil)
	if ok, err := e.verify(t, "lunar", e.token(t, "moon", "berth.dev"), client1); !ok || err != nil {
		t.Errorf("another space meanwhile: %v, %v", ok, err)
	}
	if ok, err := e.verify(t, "solar", known, client1); !ok || err != nil {
		t.Errorf("a token that was proven before, meanwhile: %v, %v", ok, err)
	}
	close(hang)
	waiting.Wait()
}

// Many requests with one token are one review.
func TestOneTokenIsReviewedOnce(t *testing.T) {
	e := newEnv(t)
	good := e.token(t, "robot", "berth.dev")
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if ok, err := e.verify(t, "solar", good, client1); !ok || err != nil {
				t.Error(ok, err)
			}
		})
	}
	all.Wait()
	if n := e.count(); n != 1 {
		t.Errorf("the host was asked %d times", n)
	}
	e.clock.SetTime(e.clock.Now().Add(provenFor))
	if ok, err := e.verify(t, "solar", good, client1); !ok || err != nil || e.count() != 2 {
		t.Errorf("after a while: %v, %v, asked %d times", ok, err, e.count())
	}
}
