// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hosttokens

import (
	"context"
	"encoding/base64"
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
