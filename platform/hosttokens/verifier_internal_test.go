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
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/vcluster/hostaccount"
)

// env is a verifier for the spaces solar and lunar, which the ServiceAccounts robot and moon of a namespace of the host own.
type env struct {
	*Verifier
	host      kubernetes.Interface
	namespace string
	clock     *clocktesting.FakePassiveClock
	fail      atomic.Pointer[func(context.Context) error] // what the host's API answers instead, if set

	jwks     atomic.Int32 // the status that the host's API answers requests for its keys with, if set
	template []string     // parts of a good token

	mu                       sync.Mutex
	reviews, at, atMax, keys int
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{host: testhost.Clientset(t, hostConfig), clock: clocktesting.NewFakePassiveClock(time.Now())}
	namespace, err := e.host.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tokens-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e.namespace = namespace.Name
	for _, name := range []string{"robot", "moon", "other"} {
		if _, err := e.host.CoreV1().ServiceAccounts(e.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	direct, err := client.NewWithWatch(hostConfig, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	counted := interceptor.NewClient(direct, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		e.mu.Lock()
		e.reviews++
		e.at++
		e.atMax = max(e.atMax, e.at)
		e.mu.Unlock()
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.at--
		}()
		if fail := e.fail.Load(); fail != nil {
			return (*fail)(ctx)
		}
		return c.Create(ctx, o, options...)
	}})
	config := rest.CopyConfig(hostConfig)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return e.getKeys(next, r) })
	})
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	owns := func(space, name string) bool {
		return space == "solar" && name == e.name("robot") || space == "lunar" && name == e.name("moon")
	}
	e.Verifier = New(counted, api.RESTClient(), owns, e.clock, klog.Background())
	e.template = strings.Split(e.token(t, "other", "berth.dev"), ".")
	return e
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// getKeys answers a request for the host's keys.
func (e *env) getKeys(host http.RoundTripper, r *http.Request) (*http.Response, error) {
	e.mu.Lock()
	e.keys++
	e.mu.Unlock()
	if status := int(e.jwks.Load()); status != 0 {
		return &http.Response{StatusCode: status, Request: r, Header: http.Header{}, Body: http.NoBody}, nil
	}
	return host.RoundTrip(r)
}

func (e *env) name(account string) string {
	return "system:serviceaccount:" + e.namespace + ":" + account
}

func (e *env) token(t *testing.T, account string, audiences ...string) string {
	t.Helper()
	request, err := e.host.CoreV1().ServiceAccounts(e.namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// forged is a token with good claims, a key of the host's, and the signature of another token.
func (e *env) forged(i int) string { return e.forgedWith(e.template[0], i) }

// forgedWith is forged with another header.
func (e *env) forgedWith(header string, i int) string {
	claims := fmt.Sprintf(`{"aud":["berth.dev"],"sub":%q,"exp":%d,"jti":"%d"}`, e.name("robot"), e.clock.Now().Add(time.Hour).Unix(), i)
	return header + "." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "." + e.template[2]
}

func (e *env) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reviews
}

func request(ctx context.Context, token, from string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api", nil)
	r.TLS = nil
	r.RemoteAddr = from + ":1"
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// verify is the result of a request that ends at once.
func (e *env) verify(t *testing.T, space, token, from string) (bool, error) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	_, ok, err := e.Verify(space, request(ctx, token, from))
	return ok, err
}

const client1 = "192.0.2.1"

// O9: only the host proves an owner of the space, by a token for Berth, which the space doesn't get.
func TestTheHostProvesItsServiceAccounts(t *testing.T) {
	e := newEnv(t)
	good := e.token(t, "robot", "berth.dev")
	r := request(t.Context(), good, "192.0.2.1")
	verified, ok, err := e.Verify("solar", r)
	if !IsFor(r) || !ok || err != nil || hostaccount.From(verified.Context()) != e.name("robot") || len(verified.Header["Authorization"]) > 0 {
		t.Fatalf("a good token: %v, %v, %q, %q", ok, err, hostaccount.From(verified.Context()), verified.Header)
	}
	if r.Header.Get("Authorization") == "" || hostaccount.From(r.Context()) != "" {
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
	if took := time.Since(deleted); took > 20*time.Second {
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

// O9, S7: a flood of forged tokens with the right claims does not reach the host, or at a low rate if its keys can't be read. It holds
// up neither other spaces, also from the same address, nor tokens that were proven before.
func TestHostileFloodsOfForgedTokensAreBounded(t *testing.T) {
	for name, status := range map[string]int32{"with the host's keys": 0, "without the host's keys": http.StatusForbidden} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.jwks.Store(status)
			e.resistFlood(t)
		})
	}
}

func (e *env) resistFlood(t *testing.T) {
	readable := e.jwks.Load() == 0
	known := e.token(t, "robot", "berth.dev")
	if ok, err := e.verify(t, "solar", known, client1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	stop, sent := e.flood(t)
	began, fresh := time.Now(), 0
	testhost.Eventually(t, "the flood", func(context.Context) error {
		e.clock.SetTime(time.Now())
		if ok, err := e.verify(t, "solar", known, client1); !ok || err != nil {
			t.Errorf("a token that was proven before: %v, %v", ok, err)
		}
		fresh++
		if ok, err := e.verify(t, "lunar", e.token(t, "moon", "berth.dev"), client1); !ok || err != nil {
			t.Errorf("a new token for another space: %v, %v", ok, err)
		}
		if readable {
			fresh++
			if ok, err := e.verify(t, "solar", e.token(t, "robot", "berth.dev"), "203.0.113.1"); !ok || err != nil {
				t.Errorf("a new token for the same space: %v, %v", ok, err)
			}
		}
		if time.Since(began) < 2*provenFor {
			return errors.New("it goes on")
		}
		return nil
	})
	stop()
	took := time.Since(began)
	t.Logf("%d forged tokens in %s: %d reviews, %d at once; %d new tokens", sent.Load(), took, e.count(), e.atMax, fresh)
	most := fresh + int(took/provenFor) + 2 // those of this test
	if !readable {
		most += int(float64(maxReviewsPerSpace) * (took.Seconds()/refusedPause.Seconds() + 2))
	}
	if e.count() > most {
		t.Errorf("the host reviewed %d tokens, want at most %d", e.count(), most)
	}
	if e.atMax > maxReviewsPerSpace+2 {
		t.Errorf("%d reviews at once", e.atMax)
	}
	if n := e.Verifier.reviews.refused.Len(); n > rememberedRefused {
		t.Errorf("%d results are remembered", n)
	}
	if most := int(took/keysInterval) + 2; e.keys > most {
		t.Errorf("the host was asked for its keys %d times, want at most %d", e.keys, most)
	}
}

// flood sends forged tokens for solar from many addresses, and from that of a good client, until stop.
func (e *env) flood(t *testing.T) (stop func(), sent *atomic.Int64) {
	flood, end := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	sent = &atomic.Int64{}
	unknown := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"x"}`))
	for i := range 48 {
		from := client1
		if i < 24 {
			from = fmt.Sprintf("198.51.100.%d", i)
		}
		senders.Go(func() {
			for n := i * 1_000_000; flood.Err() == nil; n++ {
				token := e.forged(n)
				if n%2 == 1 {
					token = e.forgedWith(unknown, n)
				}
				ok, err := e.verify(t, "solar", token, from)
				if ok || err != nil && !errors.Is(err, ErrBusy) {
					t.Errorf("a forged token: %v, %v", ok, err)
				}
				sent.Add(1)
			}
		})
	}
	return func() { end(); senders.Wait() }, sent
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
