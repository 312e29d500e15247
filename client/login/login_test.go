// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package login_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"

	"github.com/berth-dev/berth/client/login"
)

// provider is an OpenID Connect provider that does what a test says.
type provider struct {
	*httptest.Server
	t   *testing.T
	key *rsa.PrivateKey

	mu       sync.Mutex
	claims   map[string]any // change those of ID tokens
	endpoint string         // replaces the token endpoint
	requests []url.Values   // to the token endpoint
	refuse   string         // is an error of the token endpoint
	nonce    string
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t, key: key}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	answer := func(value any) { _ = json.NewEncoder(w).Encode(value) }
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		document := map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys", "authorization_endpoint": p.URL + "/auth", "token_endpoint": p.URL + "/token"}
		if p.endpoint != "" {
			document["token_endpoint"] = p.endpoint
		}
		answer(document)
	case "/keys":
		answer(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.key.Public(), KeyID: "k", Algorithm: "RS256", Use: "sig"}}})
	case "/token":
		_ = r.ParseForm()
		p.requests = append(p.requests, r.Form)
		if p.refuse != "" {
			w.WriteHeader(http.StatusBadRequest)
			answer(map[string]any{"error": p.refuse, "error_description": "no \x1b[31mway"})
			return
		}
		answer(map[string]any{"access_token": "a", "token_type": "bearer", "refresh_token": "r", "id_token": p.token()})
	}
}

func (p *provider) token() string {
	claims := map[string]any{"iss": p.URL, "aud": "berth", "sub": "alice", "nonce": p.nonce, "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range p.claims {
		claims[name] = value
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: p.key, KeyID: "k"}}, nil)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	data, _ := json.Marshal(claims)
	signature, err := signer.Sign(data)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	text, _ := signature.CompactSerialize()
	return text
}

func (p *provider) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// client returns a client of the provider with a directory of its own.
func (p *provider) client(t *testing.T) *login.Client {
	t.Helper()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &login.Client{Issuer: p.URL, ID: "berth", CAFile: ca, Dir: filepath.Join(dir, "tokens")}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	return c
}

// visit returns what a browser does that comes from the provider with a code, after requests that anybody can make.
func (p *provider) visit(t *testing.T, hostile func(redirect, state string)) func(string) {
	return func(opened string) {
		asked, err := url.Parse(opened)
		if err != nil {
			t.Error(err)
			return
		}
		query := asked.Query()
		if query.Get("code_challenge_method") != "S256" || query.Get("code_challenge") == "" || query.Get("response_type") != "code" {
			t.Errorf("it asks for %v", query)
		}
		p.set(func() { p.nonce = query.Get("nonce") })
		if hostile != nil {
			hostile(query.Get("redirect_uri"), query.Get("state"))
		}
		fetch(t, http.MethodGet, query.Get("redirect_uri")+"?code=c&state="+query.Get("state"))
	}
}

func fetch(t *testing.T, method, address string) (code int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer response.Body.Close()
	data, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(data)
}

// A page that knows the port can't end a login, or put its own code into it; the code is of use with the verifier alone.
func TestHostileAnswersDontDisturbALogin(t *testing.T) {
	p := newProvider(t)
	c := p.client(t)
	tokens, err := c.Browser(t.Context(), 0, p.visit(t, func(redirect, state string) {
		if !strings.HasPrefix(redirect, "http://localhost:") {
			t.Errorf("it is sent back to %s", redirect)
		}
		for _, request := range []struct{ method, address string }{
			{http.MethodGet, redirect + "?code=evil"}, {http.MethodGet, redirect + "?code=evil&state=x"}, {http.MethodGet, redirect + "?error=evil&state="},
			{http.MethodPost, redirect + "?code=evil&state=" + state}, {http.MethodGet, strings.TrimSuffix(redirect, "/callback") + "/?code=evil&state=" + state},
		} {
			if code, body := fetch(t, request.method, request.address); code < 400 || strings.Contains(body, "evil") {
				t.Errorf("%s %s gets %d, %s", request.method, request.address, code, body)
			}
		}
	}))
	if err != nil || tokens.Subject != "alice" || tokens.RefreshToken != "r" {
		t.Fatalf("it gets %+v, %v", tokens, err)
	}
	if len(p.requests) != 1 || p.requests[0].Get("code") != "c" || len(p.requests[0].Get("code_verifier")) < 43 {
		t.Errorf("the provider gets %v", p.requests)
	}
	again, err := c.Token(t.Context())
	if err != nil || again.IDToken != tokens.IDToken || len(p.requests) != 1 {
		t.Errorf("a token that is good is got again: %v, %v", err, p.requests)
	}
}

// What a provider sends is used only if it is an ID token for this login. Otherwise, the error gives the reason.
func TestWrongAnswersOfAProviderAreRefused(t *testing.T) {
	p := newProvider(t)
	other := newProvider(t)
	for want, change := range map[string]func(){
		"it is for another login":                      func() { p.claims = map[string]any{"nonce": "x"} },
		"verify the ID token: oidc: expected audience": func() { p.claims = map[string]any{"aud": "x"} },
		"verify the ID token: ":                        func() { p.claims = map[string]any{"iss": other.URL} },
		"token is expired":                             func() { p.claims = map[string]any{"exp": 1} },
		`get tokens: the issuer refuses it: "access_denied", "no \x1b[31mway"`:  func() { p.refuse = "access_denied" },
		`it names the URL "http://example.com/token": must begin with https://`: func() { p.endpoint = "http://example.com/token" },
	} {
		p.set(func() {
			p.claims, p.refuse, p.endpoint = nil, "", ""
			change()
		})
		c := p.client(t)
		if _, err := c.Browser(t.Context(), 0, p.visit(t, nil)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
		if _, err := c.Token(t.Context()); !errors.Is(err, login.ErrLoggedOut) {
			t.Errorf("%s: there is a token: %v", want, err)
		}
	}
	p.set(func() { p.claims, p.refuse, p.endpoint = nil, "", "" })
	_, err := p.client(t).Browser(t.Context(), 0, func(opened string) {
		asked, _ := url.Parse(opened)
		fetch(t, http.MethodGet, asked.Query().Get("redirect_uri")+"?error=access_denied&error_description=%1b[31m&state="+asked.Query().Get("state"))
	})
	if err == nil || err.Error() != `log in: the issuer refuses it: "access_denied", "\x1b[31m"` {
		t.Errorf("once the user declines: %v", err)
	}
	if _, err := p.client(t).Device(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "it has no flow for devices") {
		t.Errorf("without a flow for devices: %v", err)
	}
}

// Processes that need a token at once get it by one request, and a refresh token that is spent or another's ends the login.
func TestATokenIsRefreshedOnce(t *testing.T) {
	p := newProvider(t)
	c := p.client(t)
	soon := func() { p.claims = map[string]any{"exp": time.Now().Add(5 * time.Second).Unix()} }
	p.set(soon)
	if _, err := c.Browser(t.Context(), 0, p.visit(t, nil)); err != nil {
		t.Fatal(err)
	}
	p.set(func() { p.claims, p.requests = nil, nil })
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			if tokens, err := c.Token(t.Context()); err != nil || time.Until(tokens.Expires) < time.Minute {
				t.Errorf("it gets %+v, %v", tokens, err)
			}
		})
	}
	group.Wait()
	if len(p.requests) != 1 || p.requests[0].Get("grant_type") != "refresh_token" {
		t.Errorf("ten at once make %v", p.requests)
	}
	for reason, change := range map[string]func(){
		"of another user": func() { p.claims = map[string]any{"sub": "eve"} },
		"spent":           func() { p.refuse = "invalid_grant" },
	} {
		p.set(func() { p.claims, p.refuse = nil, ""; soon() })
		if _, err := c.Browser(t.Context(), 0, p.visit(t, nil)); err != nil {
			t.Fatal(err)
		}
		p.set(func() { p.claims = nil; change() })
		if _, err := c.Token(t.Context()); !errors.Is(err, login.ErrLoggedOut) {
			t.Errorf("with a refresh token that is %s: %v", reason, err)
		}
	}
	for _, want := range []bool{true, false} {
		if was, err := c.Logout(t.Context()); err != nil || was != want {
			t.Errorf("it logs out: %t, %v; want %t", was, err, want)
		}
	}
}
