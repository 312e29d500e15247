// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package authn_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/gateway/authn"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/testwebhook"
)

const (
	tenantExtra  = "alpha.kubernetes.io/identity/user/domain/name"
	rolesExtra   = "alpha.kubernetes.io/identity/roles"
	projectExtra = "alpha.kubernetes.io/identity/project/id"
)

// reviewer is a webhook that reviews tokens.
type reviewer struct{ *testwebhook.Server }

func newReviewer(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, token string)) *reviewer {
	t.Helper()
	return &reviewer{testwebhook.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		review := authenticationv1.TokenReview{}
		if err := json.NewDecoder(r.Body).Decode(&review); r.URL.Path != "/webhook" || err != nil || review.APIVersion != "authentication.k8s.io/v1" {
			t.Errorf("the webhook gets %v, %v", review, err)
		}
		answer(w, r, review.Spec.Token)
	})}
}

// accept answers that a token is of a user.
func accept(w http.ResponseWriter, u authenticationv1.UserInfo) {
	answer(w, authenticationv1.TokenReviewStatus{Authenticated: true, User: u})
}

func answer(w http.ResponseWriter, status authenticationv1.TokenReviewStatus) {
	review := authenticationv1.TokenReview{Status: status}
	review.APIVersion, review.Kind = "authentication.k8s.io/v1", "TokenReview"
	testwebhook.Answer(w, review)
}

func (v *reviewer) open(t *testing.T, ttl time.Duration, files authn.Files) *authn.Authenticator {
	t.Helper()
	files.Webhook = authn.Webhook{ConfigFile: v.Kubeconfig, Version: "v1", CacheTTL: ttl, TenantExtra: tenantExtra, RolesExtra: rolesExtra, ProjectExtra: projectExtra}
	return open(t, files)
}

func numbered(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("role-%d", i))
	}
	return all
}

// from is a request with a token of a client.
func from(client int, token string) *http.Request {
	r := bearing(token)
	r.RemoteAddr = fmt.Sprintf("192.0.%d.%d:1", client/250, client%250+1)
	return r
}

func extra(tenant ...string) map[string]authenticationv1.ExtraValue {
	return map[string]authenticationv1.ExtraValue{tenantExtra: tenant}
}

// A4, T4: the reply of a webhook says which tenant a user is of, and what the user's roles are. Odd replies make nobody.
func TestRepliesOfAWebhookSayWhoseTokensAre(t *testing.T) {
	roles := func(project string, roles ...string) map[string]authenticationv1.ExtraValue {
		return map[string]authenticationv1.ExtraValue{tenantExtra: {"solar"}, rolesExtra: roles, projectExtra: {project}}
	}
	const refused = "refused: your token names"
	for reason, c := range map[string]struct {
		user authenticationv1.UserInfo
		want string // begins with this
	}{
		"a tenant":                 {authenticationv1.UserInfo{Username: "alice", Groups: []string{"b", "a", "system:authenticated"}, Extra: extra("solar")}, "alice of solar in a+b"},
		"roles of a project":       {authenticationv1.UserInfo{Username: "alice", Groups: []string{"p1"}, Extra: roles("p1", "member", "admin")}, "alice of solar in admin+member+p1+p1:admin+p1:member"},
		"roles of no project":      {authenticationv1.UserInfo{Username: "alice", Extra: roles("", "member", "")}, "alice of solar in member"},
		"a role like a project's":  {authenticationv1.UserInfo{Username: "alice", Extra: roles("p1", "p2:admin")}, "alice of solar in p1:p2:admin"},
		"a project with a colon":   {authenticationv1.UserInfo{Username: "alice", Extra: roles("p1:p2", "admin")}, "alice of solar in admin"},
		"no tenant":                {authenticationv1.UserInfo{Username: "alice"}, "refused: your credential names no tenant, and the platform has no default tenant"},
		"an empty tenant":          {authenticationv1.UserInfo{Username: "alice", Extra: extra("")}, refused},
		"two tenants":              {authenticationv1.UserInfo{Username: "alice", Extra: extra("solar", "lunar")}, refused},
		"the tenant system":        {authenticationv1.UserInfo{Username: "alice", Extra: extra("system")}, refused + " the tenant system"},
		"upper case":               {authenticationv1.UserInfo{Username: "alice", Extra: extra("Solar")}, `refused: your credential names the tenant "Solar"`},
		"a NUL":                    {authenticationv1.UserInfo{Username: "alice", Extra: extra("system\x00")}, "refused: your"},
		"a space":                  {authenticationv1.UserInfo{Username: "alice", Extra: extra(" system")}, "refused: your"},
		"a path":                   {authenticationv1.UserInfo{Username: "alice", Extra: extra("solar/../system")}, "refused: your"},
		"an unknown one":           {authenticationv1.UserInfo{Username: "alice", Extra: extra("mars")}, "refused: your credential names the tenant mars, which has no space"},
		"no name":                  {authenticationv1.UserInfo{Extra: extra("solar")}, "refused: your token is of a user without a name"},
		"a name with a NUL":        {authenticationv1.UserInfo{Username: "root\x00", Extra: extra("solar")}, "refused: your token is of a user or group with a control"},
		"a user of Kubernetes":     {authenticationv1.UserInfo{Username: "system:admin", Extra: extra("solar")}, "refused: your credential names the user or group"},
		"a group of Kubernetes":    {authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:masters"}, Extra: extra("solar")}, "refused: your credential names the user or group"},
		"a role like such a group": {authenticationv1.UserInfo{Username: "alice", Extra: roles("", "system:masters")}, "alice of solar in "},
		"a project like such":      {authenticationv1.UserInfo{Username: "alice", Extra: roles("system", "masters")}, "refused: your credential names the user or group"},
		"a group of Berth":         {authenticationv1.UserInfo{Username: "alice", Groups: []string{"berth:host:serviceaccounts"}, Extra: extra("solar")}, "refused: your credential names the user or group"},
		"many roles":               {authenticationv1.UserInfo{Username: "alice", Extra: roles("p", numbered(300)...)}, "refused: your token is of a user with"},
		"a long name":              {authenticationv1.UserInfo{Username: strings.Repeat("a", 20000), Extra: extra("solar")}, "refused: your token is of a user with"},
	} {
		v := newReviewer(t, func(w http.ResponseWriter, _ *http.Request, _ string) { accept(w, c.user) })
		a := v.open(t, time.Minute, authn.Files{})
		for range 2 { // also once it is remembered
			if got := text(a.Identify(bearing("one"))); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s: %s; want %s", reason, got, c.want)
			}
		}
		if n := v.Asked.Load(); n != 1 {
			t.Errorf("%s: the webhook is asked %d times", reason, n)
		}
	}
	v := newReviewer(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		accept(w, authenticationv1.UserInfo{Username: "alice", UID: "u1", Extra: map[string]authenticationv1.ExtraValue{
			"example.com/b": {"2", "1"}, "Berth.dev/tenant": {"system"}, "authentication.kubernetes.io/node-name": {"n"},
		}})
	})
	who, err := v.open(t, time.Minute, authn.Files{DefaultTenant: "solar"}).Identify(bearing("one"))
	if got := fmt.Sprintf("%v %v", who, err); err != nil || who.Tenant != "solar" || who.UID != "u1" || who.Proof != identity.Webhook || fmt.Sprint(who.User().Extra) != "map[berth.dev/tenant:[solar] example.com/b:[1 2]]" {
		t.Errorf("without a tenant, and with a default tenant: %s", got)
	}
	if got := text(v.open(t, time.Minute, authn.Files{DefaultTenant: "mars"}).Identify(bearing("one"))); !strings.HasPrefix(got, "refused: your credential names the tenant mars, which has no space") {
		t.Errorf("with a default tenant that isn't there: %s", got)
	}
}

// A4: tokens that are, or may be, good elsewhere aren't sent to a webhook.
func TestAWebhookGetsNoTokensOfOthers(t *testing.T) {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	jwt := func(claims string) string { return part(`{"alg":"ES256"}`) + "." + part(claims) + ".c2ln" }
	v := newReviewer(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		accept(w, authenticationv1.UserInfo{Username: "alice", Extra: extra("solar")})
	})
	ca := newAuthority(t)
	a := v.open(t, time.Minute, authn.Files{ClientCA: ca.file(), Tokens: write(t, "of-bob,bob,u1,,solar\n")})
	for reason, token := range map[string]string{
		"of a space":             jwt(`{"iss":"https://solar.berth.internal","sub":"system:serviceaccount:default:default"}`),
		"of another issuer":      jwt(`{"iss":"https://accounts.example.com","sub":"alice"}`),
		"with an issuer in caps": jwt(`{"ISS":"x"}`),
		"with unreadable claims": part(`{"alg":"ES256"}`) + ".!!!.c2ln",
		"with other claims":      part(`{"alg":"ES256"}`) + "." + part(`[]`) + ".c2ln",
		"encrypted":              part(`{"alg":"dir","enc":"A128GCM"}`) + "..a.b.c",
		"without a signature":    part(`{"alg":"none"}`) + "." + part(`{}`),
		"to join a cluster":      "abcdef.0123456789abcdef",
		"in another script":      "tökén",
		"of two words":           "one two",
		"too long":               strings.Repeat("x", 9000),
		"none":                   "",
	} {
		if got := text(a.Identify(bearing(token))); got != "nobody" || v.Asked.Load() != 0 {
			t.Errorf("a token %s: %s, and the webhook is asked %d times", reason, got, v.Asked.Load())
			v.Asked.Store(0)
		}
	}
	withCertificate := newAuthority(t).request(ca.cert.Subject)
	withCertificate.Header.Set("Authorization", "Bearer one")
	basic := httptest.NewRequest(http.MethodGet, "/", nil)
	basic.SetBasicAuth("alice", "secret")
	for reason, r := range map[string]*http.Request{"a token of a file": bearing("of-bob"), "a client with a certificate": withCertificate, "a password": basic} {
		if _, err := a.Identify(r); err != nil || v.Asked.Load() != 0 {
			t.Errorf("%s: %v, and the webhook is asked %d times", reason, err, v.Asked.Load())
		}
	}
	for reason, token := range map[string]string{"of Keystone": "gAAAAABrCCGcPtNfwFA_eS86UK-hoWn2XrmFLvPZJeKCiq50iQ", "of Keystone, signed": jwt(`{"sub":"u","openstack_methods":["password"]}`), "with dots": "a.b.c"} {
		if got := text(a.Identify(bearing(token))); got != "alice of solar in " {
			t.Errorf("a token %s: %s", reason, got)
		}
	}
}

// A4: reviews are remembered: those of good tokens for the time that is configured, and those of others for seconds. Requests with the same
// token wait for one review.
func TestReviewsAreRemembered(t *testing.T) {
	var revoked atomic.Bool
	v := newReviewer(t, func(w http.ResponseWriter, r *http.Request, token string) {
		select { // so that all requests wait for this review
		case <-r.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
		if token == "good" && !revoked.Load() {
			accept(w, authenticationv1.UserInfo{Username: "alice", Extra: extra("solar")})
			return
		}
		answer(w, authenticationv1.TokenReviewStatus{Error: "it isn't good"})
	})
	a := v.open(t, time.Minute, authn.Files{})
	for token, want := range map[string]string{"good": "alice of solar in ", "bad": "nobody"} {
		v.Asked.Store(0)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if got := text(a.Identify(bearing(token))); got != want {
					t.Errorf("with the token %s: %s; want %s", token, got, want)
				}
			})
		}
		all.Wait()
		if n := v.Asked.Load(); n != 1 {
			t.Errorf("the webhook is asked %d times about the token %s", n, token)
		}
	}
	a = v.open(t, time.Second, authn.Files{})
	if got := text(a.Identify(bearing("good"))); got != "alice of solar in " {
		t.Errorf("with the token good: %s", got)
	}
	revoked.Store(true)
	for begin := time.Now(); text(a.Identify(bearing("good"))) != "nobody"; time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > 5*time.Second {
			t.Fatal("a token that is revoked stays good")
		}
	}
}

// A4: a webhook that can't be asked makes nobody a stranger, who would throw the token away: the client may try again.
func TestAWebhookThatFailsIsAskedAgain(t *testing.T) {
	reply := func(code int, body string) func(http.ResponseWriter, *http.Request, string) {
		return func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	for reason, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request, string)
		want   string
	}{
		"that says no with 401": {reply(401, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":false}}`), "nobody"},
		"that says no":          {reply(200, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":false,"error":"expired"}}`), "nobody"},
		"that says something":   {reply(200, `{}`), "nobody"},
		"that doesn't know us":  {reply(403, `{}`), "try again"},
		"that fails":            {reply(500, `{}`), "try again"},
		"that is busy":          {reply(429, ``), "try again"},
		"that speaks HTML":      {reply(200, `<html>`), "try again"},
		"that redirects": {func(w http.ResponseWriter, r *http.Request, _ string) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		}, "try again"},
		"that talks on": {func(w http.ResponseWriter, r *http.Request, _ string) {
			w.Header().Set("Content-Type", "application/json")
			block := []byte(strings.Repeat(" ", 1<<20))
			for i := 0; i < 1<<10 && r.Context().Err() == nil; i++ {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}, "try again"},
		"that hangs up": {func(http.ResponseWriter, *http.Request, string) { panic(http.ErrAbortHandler) }, "try again"},
	} {
		v := newReviewer(t, c.answer)
		a := v.open(t, time.Minute, authn.Files{Tokens: write(t, "of-bob,bob,u1,,solar\n")})
		who, err := a.Identify(bearing("one"))
		switch {
		case c.want == "nobody" && (who != nil || err != nil):
			t.Errorf("a webhook %s: %v, %v", reason, who, err)
		case c.want != "nobody" && (!apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("a webhook %s: %v, %v", reason, who, err)
		}
		if got := text(a.Identify(bearing("of-bob"))); got != "bob of solar in " {
			t.Errorf("a webhook %s, and the token of a file: %s", reason, got)
		}
		if _, err := a.Refuse(bearing("one")); c.want != "nobody" && !apierrors.IsServiceUnavailable(err) {
			t.Errorf("a webhook %s, where no credential of the platform is accepted: %v", reason, err)
		}
	}
	v := newReviewer(t, nil)
	a := v.open(t, time.Minute, authn.Files{})
	v.Close()
	if _, err := a.Identify(bearing("one")); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a webhook that is down: %v", err)
	} else if after, _ := apierrors.SuggestsClientDelay(err); after == 0 {
		t.Errorf("it isn't said when to try again: %v", err)
	}
}

// A4, L3: a flood of unknown tokens neither holds up others, nor reaches the webhook as a flood; and while the webhook hangs, only requests
// that it has to review wait.
func TestAFloodOfTokensIsHeldBack(t *testing.T) {
	hang := make(chan struct{})
	v := newReviewer(t, func(w http.ResponseWriter, r *http.Request, token string) {
		switch token {
		case "known", "other":
			accept(w, authenticationv1.UserInfo{Username: "alice", Extra: extra("solar")})
			return
		}
		select {
		case <-hang:
		case <-r.Context().Done():
		}
		answer(w, authenticationv1.TokenReviewStatus{})
	})
	a := v.open(t, 0, authn.Files{Tokens: write(t, "of-bob,bob,u1,,solar\n")}) // each good token is reviewed again at each request
	if got := text(a.Identify(from(999, "known"))); got != "alice of solar in " {
		t.Fatal(got)
	}
	var flood sync.WaitGroup
	var busy atomic.Int64
	const clients, each = 40, 25
	for client := range clients {
		for i := range each {
			flood.Go(func() {
				if _, err := a.Identify(from(client, fmt.Sprintf("forged-%d-%d", client, i))); apierrors.IsTooManyRequests(err) {
					busy.Add(1)
				}
			})
		}
	}
	for begin := time.Now(); busy.Load() < clients*each-64; time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > 8*time.Second {
			t.Fatalf("%d of the flood are told to try again", busy.Load())
		}
	}
	begin := time.Now()
	for token, want := range map[string]string{"known": "alice of solar in ", "of-bob": "bob of solar in ", "": "nobody"} {
		if got := text(a.Identify(from(999, token))); got != want {
			t.Errorf("meanwhile, with the token %q: %s; want %s", token, got, want)
		}
	}
	if _, err := a.Identify(from(998, "other")); !apierrors.IsTooManyRequests(err) {
		t.Errorf("meanwhile, with a token that isn't known: %v", err)
	}
	if took := time.Since(begin); took > 5*time.Second { // the reviews that hang take 10 s
		t.Errorf("others wait %s", took)
	}
	close(hang)
	flood.Wait()
	if most := v.Most.Load(); most > 64+16 {
		t.Errorf("the webhook is asked %d times at once", most)
	}
	// Tokens that aren't good keep their place for a while.
	v.Asked.Store(0)
	for i := range 1000 {
		_, _ = a.Identify(from(1, fmt.Sprintf("more-%d", i)))
	}
	if n := v.Asked.Load(); n > 10 {
		t.Errorf("one client makes %d reviews in a moment", n)
	}
}

// A4: what is wrong with the configuration is said at the start.
func TestWrongWebhooksAreRefused(t *testing.T) {
	v := newReviewer(t, nil)
	good := v.Kubeconfig
	for flag, config := range map[string]authn.Webhook{
		"authentication-token-webhook-config-file=": {ConfigFile: "/nowhere", Version: "v1"},
		"authentication-token-webhook-version=v2":   {ConfigFile: good, Version: "v2"},
		"authentication-token-webhook-cache-ttl=-1": {ConfigFile: good, Version: "v1", CacheTTL: -1},
	} {
		if _, err := authn.New(authn.Files{Webhook: config}, nil, klog.Background()); err == nil || !strings.HasPrefix(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
	plain := write(t, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "http://example.com"}}]}`)
	if _, err := authn.New(authn.Files{Webhook: authn.Webhook{ConfigFile: plain, Version: "v1"}}, nil, klog.Background()); err == nil || !strings.Contains(err.Error(), "must be https://") {
		t.Errorf("over plain HTTP: %v", err)
	}
}
