// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package authn_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/gateway/authn"
	"github.com/berth-dev/berth/identity"
)

// provider is an OpenID Connect provider whose keys the test has, so that it can forge tokens.
type provider struct {
	*httptest.Server
	t       *testing.T
	key     *rsa.PrivateKey
	fetched atomic.Int32 // how often its keys were fetched
	down    atomic.Bool
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t, key: key}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case p.down.Load():
			http.Error(w, "down", http.StatusServiceUnavailable)
		case r.URL.Path == "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys"})
		case r.URL.Path == "/keys":
			p.fetched.Add(1)
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "RS256", Use: "sig"}}})
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// config is an entry of jwt in an AuthenticationConfiguration. more are lines of it.
func (p *provider) config(more string) string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	return fmt.Sprintf(`
- issuer: {url: %q, audiences: [berth], certificateAuthority: %q}
  claimMappings:
    username: {claim: sub, prefix: ""}
    groups: {claim: groups, prefix: ""}
    extra:
    - {key: berth.dev/tenant, valueExpression: "has(claims.tenant) ? claims.tenant : ''"}
    - {key: berth.dev/system, valueExpression: "has(claims.root) ? claims.root : ''"}
    - {key: example.com/team, valueExpression: "has(claims.team) ? claims.team : ''"}
%s`, p.URL, ca, more)
}

func authenticationConfig(providers ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:" + strings.Join(providers, "")
}

type tokenClaims map[string]any

// token is one of a user that is good, unless claims say otherwise.
func (p *provider) token(claims tokenClaims) string {
	return p.signed(jose.RS256, p.key, claims)
}

func (p *provider) signed(algorithm jose.SignatureAlgorithm, key any, claims tokenClaims) string {
	p.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	signature, err := signer.Sign(p.payload(claims))
	if err != nil {
		p.t.Fatal(err)
	}
	text, err := signature.CompactSerialize()
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

func (p *provider) payload(claims tokenClaims) []byte {
	all := tokenClaims{"iss": p.URL, "aud": "berth", "sub": "alice", "tenant": "solar", "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	for name, value := range all {
		if value == nil {
			delete(all, name)
		}
	}
	data, err := json.Marshal(all)
	if err != nil {
		p.t.Fatal(err)
	}
	return data
}

// running returns an authenticator that runs until the test ends.
func running(t *testing.T, files authn.Files) *authn.Authenticator {
	t.Helper()
	a := open(t, files)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return a
}

// awaitText polls until a token is known as something.
func awaitText(t *testing.T, a *authn.Authenticator, token, want string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if got = text(a.Identify(bearing(token))); strings.HasPrefix(got, want) {
			return
		}
		select {
		case <-t.Context().Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatalf("it is %s; want %s", got, want)
}

// A5: a claim says which tenant a user is of, and nobody becomes a system user by it.
func TestTokensOfProvidersSayWhoseTheyAre(t *testing.T) {
	p := newProvider(t)
	a := running(t, authn.Files{Issuers: write(t, authenticationConfig(p.config(`
  claimValidationRules:
  - {expression: "!has(claims.suspended)", message: "the account is suspended"}
`)))})
	awaitText(t, a, p.token(nil), "alice of solar in ")
	for reason, c := range map[string]struct {
		claims tokenClaims
		want   string
	}{
		"groups":                  {tokenClaims{"groups": []string{"crew", "ops"}}, "alice of solar in crew+ops"},
		"no tenant":               {tokenClaims{"tenant": nil}, "refused: your credential names no tenant"},
		"an empty one":            {tokenClaims{"tenant": ""}, "refused: your credential names no tenant"},
		"one in a list":           {tokenClaims{"tenant": []string{"solar"}}, "alice of solar in "},
		"a list":                  {tokenClaims{"tenant": []string{"solar", "lunar"}}, "refused: your token of the issuer " + p.URL + " names 2 tenants"},
		"an empty list":           {tokenClaims{"tenant": []string{}}, "refused: your credential names no tenant"},
		"system in a list":        {tokenClaims{"tenant": []string{"solar", "system"}}, "refused: your token of the issuer " + p.URL + " names the tenant system"},
		"an object":               {tokenClaims{"tenant": tokenClaims{"name": "solar"}}, "refused: your token of the issuer"},
		"a number":                {tokenClaims{"tenant": 7}, "refused: your token of the issuer"},
		"an unknown tenant":       {tokenClaims{"tenant": "mars"}, "refused: your credential names the tenant mars, which has no space"},
		"a look-alike":            {tokenClaims{"tenant": "ѕystem"}, "refused: your credential names the tenant"},
		"a space":                 {tokenClaims{"tenant": "system "}, "refused: your credential names the tenant"},
		"upper case":              {tokenClaims{"tenant": "System"}, "refused: your credential names the tenant"},
		"system":                  {tokenClaims{"tenant": "system"}, "refused: your token of the issuer " + p.URL + " names the tenant system, which needs the mapping berth.dev/system"},
		"a system user":           {tokenClaims{"root": "true"}, "alice of system in "},
		"not quite":               {tokenClaims{"root": "yes", "tenant": "system"}, "refused: your token"},
		"not quite, in a list":    {tokenClaims{"root": []string{"true", "false"}, "tenant": "system"}, "refused: your token"},
		"a control character":     {tokenClaims{"groups": []string{"a\x00b"}}, "refused: your token is of a user or group with a control character"},
		"too many groups":         {tokenClaims{"groups": strings.Split(strings.Repeat("g,", 250)+"g", ",")}, "refused: your credential has too many groups: "},
		"a group of Kubernetes":   {tokenClaims{"groups": []string{"system:masters"}}, "refused: your credential names the user or group"},
		"a user of Kubernetes":    {tokenClaims{"sub": "system:admin"}, "refused: your credential names the user or group"},
		"a user of Berth":         {tokenClaims{"sub": "berth:host:serviceaccount:a:b", "root": "true"}, "refused: your credential names the user or group"},
		"a ServiceAccount":        {tokenClaims{"sub": "system:serviceaccount:default:default"}, "refused: your credential names the user or group"},
		"what a rule refuses":     {tokenClaims{"suspended": true}, "refused: your token of the issuer " + p.URL + " is refused: error evaluating claim validation expression: validation expression '!has(claims.suspended)' failed: the account is suspended"},
		"a claim of another type": {tokenClaims{"groups": 7}, "refused: your token of the issuer"},
	} {
		token := p.token(c.claims)
		for range 2 { // also once it is remembered
			if got := text(a.Identify(bearing(token))); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s: %s; want %s", reason, got, c.want)
			}
		}
	}
	who, err := a.Identify(bearing(p.token(tokenClaims{"team": []string{"a", "b"}, "jti": "x"})))
	if err != nil || who.Proof != identity.OIDC || strings.Join(who.User().Extra["example.com/team"], "+") != "a+b" || strings.Join(who.User().Extra["berth.dev/tenant"], "+") != "solar" {
		t.Errorf("with another field, it is %+v, %v", who, err)
	}
	if got := text(a.Refuse(bearing(p.token(nil)))); !strings.HasPrefix(got, "refused: you have a credential of the platform") {
		t.Errorf("where none is accepted: %s", got)
	}
}

// A5: what isn't signed by a provider, for this platform and now, is nobody's.
func TestHostileTokensAreRefused(t *testing.T) {
	p, other := newProvider(t), newProvider(t)
	a := running(t, authn.Files{Issuers: write(t, authenticationConfig(p.config("")))})
	good := p.token(nil)
	awaitText(t, a, good, "alice of solar in ")
	encode := base64.RawURLEncoding.EncodeToString
	public, err := x509.MarshalPKIXPublicKey(p.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, ".")
	const unsigned = "refused: your token names the issuer"
	for reason, c := range map[string]struct{ token, want string }{
		"alg none":                 {encode([]byte(`{"alg":"none"}`)) + "." + encode(p.payload(nil)) + ".", unsigned},
		"alg none, with a key":     {encode([]byte(`{"alg":"none","kid":"k"}`)) + "." + encode(p.payload(nil)) + "." + parts[2], unsigned},
		"HS256 with the PEM":       {p.signed(jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), nil), unsigned},
		"HS256 with the DER":       {p.signed(jose.HS256, public, nil), unsigned},
		"a key of its own":         {p.signed(jose.RS256, other.key, nil), unsigned},
		"an embedded key":          {embedded(t, other.key, p.payload(nil)), unsigned},
		"another payload":          {parts[0] + "." + encode(p.payload(tokenClaims{"sub": "root"})) + "." + parts[2], unsigned},
		"no signature":             {parts[0] + "." + parts[1] + ".", unsigned},
		"no signature, two parts":  {parts[0] + "." + parts[1], unsigned},
		"another audience":         {p.token(tokenClaims{"aud": "another"}), "refused: your token of the issuer " + p.URL + ` is for the audience ["another"]`},
		"no audience":              {p.token(tokenClaims{"aud": nil}), "refused: your token of the issuer"},
		"expired":                  {p.token(tokenClaims{"exp": time.Now().Add(-time.Second).Unix()}), "refused: your token of the issuer " + p.URL + " has expired; log in again"},
		"for ever":                 {p.token(tokenClaims{"exp": nil}), "refused: your token of the issuer " + p.URL + " has expired"},
		"not yet":                  {p.token(tokenClaims{"nbf": time.Now().Add(time.Hour).Unix()}), unsigned},
		"a slash at the end":       {p.token(tokenClaims{"iss": p.URL + "/"}), "nobody"},
		"upper case":               {p.token(tokenClaims{"iss": strings.Replace(p.URL, "https", "HTTPS", 1)}), "nobody"},
		"without TLS":              {p.token(tokenClaims{"iss": strings.Replace(p.URL, "https", "http", 1)}), "nobody"},
		"a path":                   {p.token(tokenClaims{"iss": p.URL + "/../"}), "nobody"},
		"a list":                   {p.token(tokenClaims{"iss": []string{p.URL}}), "nobody"},
		"another issuer":           {other.token(nil), "nobody"},
		"of a space":               {p.token(tokenClaims{"iss": "https://kubernetes.default.svc.cluster.local/spaces/solar"}), "nobody"},
		"no issuer":                {p.token(tokenClaims{"iss": nil}), "nobody"},
		"not JSON":                 {parts[0] + "." + encode([]byte("{")) + "." + parts[2], "nobody"},
		"not base64":               {parts[0] + ".%." + parts[2], "nobody"},
		"a huge one":               {p.token(tokenClaims{"x": strings.Repeat("x", 1<<20)}), "refused: your token has 1"},
		"a deep one":               {parts[0] + "." + encode([]byte(`{"x":`+strings.Repeat("[", 11000))) + "." + parts[2], "nobody"},
		"in JSON":                  {`{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, "nobody"},
		"a duplicate that differs": {parts[0] + "." + encode([]byte(strings.Replace(string(p.payload(nil)), "{", `{"iss":"https://evil.example.com",`, 1))) + "." + parts[2], unsigned},
	} {
		for range 2 {
			if got := text(a.Identify(bearing(c.token))); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s: %.300s; want %s", reason, got, c.want)
			}
		}
	}
	// Each of these tokens makes the verifier fetch keys, unless that is limited.
	before := p.fetched.Load()
	for i := range 200 {
		if got := text(a.Identify(bearing(p.signed(jose.HS256, fmt.Appendf(nil, "a key of more than thirty-two bytes, number %d", i), nil)))); !strings.HasPrefix(got, "refused: ") {
			t.Fatalf("the forged token %d: %s", i, got)
		}
		forged := parts[0] + "." + encode(p.payload(tokenClaims{"sub": fmt.Sprint(i)})) + "." + parts[2]
		if got := text(a.Identify(bearing(forged))); !strings.HasPrefix(got, "refused: ") {
			t.Fatalf("the forged token %d: %s", i, got)
		}
	}
	if fetched := p.fetched.Load() - before; fetched > 50 {
		t.Errorf("400 forged tokens make the provider send its keys %d times", fetched)
	}
	if got := text(a.Identify(bearing(good))); got != "alice of solar in " {
		t.Errorf("after the attack, a good token: %s", got)
	}
}

// embedded is a token that brings the key which has signed it.
func embedded(t *testing.T, key *rsa.PrivateKey, payload []byte) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, &jose.SignerOptions{EmbedJWK: true})
	if err != nil {
		t.Fatal(err)
	}
	signature, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signature.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A5: a provider that can't be reached neither keeps Berth from starting nor others from working, and is known once it can be.
func TestAProviderThatIsDownAffectsNoOther(t *testing.T) {
	up, down := newProvider(t), newProvider(t)
	down.down.Store(true)
	begin := time.Now()
	a := running(t, authn.Files{Issuers: write(t, authenticationConfig(up.config(""), down.config("")))})
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it starts in %v", took)
	}
	awaitText(t, a, up.token(nil), "alice of solar in ")
	if _, err := a.Identify(bearing(down.token(nil))); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), down.URL+" can't be read now; try again later") {
		t.Errorf("of the provider that is down: %v", err)
	}
	down.down.Store(false)
	awaitText(t, a, down.token(nil), "alice of solar in ")
}

// A5: the file is read again. While it is wrong, what was read before holds, and providers that stay are not interrupted.
func TestProvidersAreReadAgain(t *testing.T) {
	one, two := newProvider(t), newProvider(t)
	path := write(t, authenticationConfig(one.config("")))
	a := running(t, authn.Files{Issuers: path})
	awaitText(t, a, one.token(nil), "alice of solar in ")
	change := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change(authenticationConfig(one.config(""), two.config("")))
	awaitText(t, a, two.token(nil), "alice of solar in ")
	change("wrong")
	ofOne := one.token(nil)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		if got := text(a.Identify(bearing(ofOne))); got != "alice of solar in " {
			t.Fatalf("while the file is wrong: %s", got)
		}
	}
	change(authenticationConfig(two.config("")))
	awaitText(t, a, ofOne, "nobody")
	awaitText(t, a, two.token(nil), "alice of solar in ")
	change(authenticationConfig(strings.Replace(two.config(""), "audiences: [berth]", "audiences: [another]", 1)))
	awaitText(t, a, two.token(nil), "refused: your token of the issuer "+two.URL+" is for the audience")
}

// A5: what is wrong with the file is reported at the start, with the field.
func TestWrongProvidersAreRefused(t *testing.T) {
	p := newProvider(t)
	good := authenticationConfig(p.config(""))
	for want, config := range map[string]string{
		"URL scheme must be https":                          strings.Replace(good, "https://", "http://", 1),
		"jwt[1].issuer.url: Duplicate value":                authenticationConfig(p.config(""), p.config("")),
		"jwt[0].issuer.url: Invalid value: \"https://kuber": strings.Replace(good, p.URL, "https://kubernetes.default.svc.cluster.local/spaces/solar", 1),
		"it is the issuer of a space":                       strings.Replace(good, p.URL, "https://kubernetes.default.svc.cluster.local", 1),
		"jwt[0].claimMappings.extra[0].key: Unsupported":    strings.Replace(good, "berth.dev/tenant", "berth.dev/tenants", 1),
		"jwt[0].claimMappings.extra[0].valueExpression":     strings.Replace(good, "has(claims.tenant)", "has(claims", 1),
		"anonymous: Forbidden":                              good + "\nanonymous: {enabled: true}\n",
		`unknown field "jwt[0].issuer.urls"`:                strings.Replace(good, "{url:", "{urls:", 1),
		"Object 'Kind' is missing":                          "",
		`no kind "AuthorizationConfiguration"`:              "apiVersion: apiserver.config.k8s.io/v7\nkind: AuthorizationConfiguration\n",
		"must have the kind AuthenticationConfiguration":    "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n",
		"egress": strings.Replace(good, "audiences:", "egressSelectorType: cluster, audiences:", 1),
	} {
		_, err := authn.New(authn.Files{Issuers: write(t, config)}, nil, klog.Background())
		if err == nil || !strings.HasPrefix(err.Error(), "authentication-config=") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
