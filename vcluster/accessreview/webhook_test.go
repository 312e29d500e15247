// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package accessreview_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/testwebhook"
	"github.com/berth-dev/berth/vcluster/accessreview"
	"github.com/berth-dev/berth/vcluster/inside"
)

// serve serves a webhook that answers as decide says.
func serve(t *testing.T, decide func(r *http.Request, asked *authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus) *testwebhook.Server {
	t.Helper()
	return testwebhook.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		review := authorizationv1.SubjectAccessReview{}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		review.Status = decide(r, &review.Spec)
		testwebhook.Answer(w, review)
	})
}

func open(t *testing.T, config accessreview.Config) *accessreview.Webhook {
	t.Helper()
	config.Version = "v1"
	if err := config.Complete(); err != nil {
		t.Fatal(err)
	}
	webhook, err := accessreview.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	return webhook
}

func of(tenant string) func() string { return func() string { return tenant } }

func getPod(name string, u user.Info) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{User: u, Verb: "get", Namespace: "default", APIVersion: "v1", Resource: "pods", Name: name, ResourceRequest: true, Path: "/api/v1/namespaces/default/pods/" + name}
}

// A7: the webhook hears of the user, the request, the tenant, and the space, and what clients claim of these counts for nothing. Its answers
// are remembered for each space.
func TestTheWebhookIsAsked(t *testing.T) {
	var last atomic.Pointer[authorizationv1.SubjectAccessReviewSpec]
	server := serve(t, func(_ *http.Request, asked *authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
		last.Store(asked)
		name := "a path"
		if asked.ResourceAttributes != nil {
			name = asked.ResourceAttributes.Name
		}
		return authorizationv1.SubjectAccessReviewStatus{Allowed: name == "mine" || name == "both", Denied: name == "denied" || name == "both", Reason: strings.Repeat("because ", 1000)}
	})
	webhook := open(t, accessreview.Config{File: server.Kubeconfig, Allowed: time.Minute, Unallowed: time.Minute})
	solar, lunar := webhook.For("solar-two", of("solar")), webhook.For("lunar", of("lunar"))
	alice := &user.DefaultInfo{Name: "alice", UID: "u1", Groups: []string{"crew"}, Extra: map[string][]string{
		"berth.dev/tenant": {"system"}, "berth.dev/space": {"other"}, "berth.dev/space-tenant": {"system"}, "example.com/roles": {"admin"},
	}}
	ctx := identity.With(t.Context(), &identity.Identity{Name: "alice", Tenant: "galaxy"})
	for name, want := range map[string]authorizer.Decision{"mine": authorizer.DecisionAllow, "other": authorizer.DecisionNoOpinion, "denied": authorizer.DecisionDeny, "both": authorizer.DecisionDeny} {
		server.Asked.Store(0)
		for range 3 {
			decision, reason, err := solar.Authorize(ctx, getPod(name, alice))
			if decision != want || err != nil || len(reason) > 300 {
				t.Errorf("%s: %v, %d bytes of reason, %v", name, decision, len(reason), err)
			}
		}
		if n := server.Asked.Load(); n != 1 {
			t.Errorf("%s: it is asked %d times", name, n)
		}
	}
	if _, _, err := solar.Authorize(ctx, getPod("mine-too", alice)); err != nil {
		t.Fatal(err)
	}
	want := &authorizationv1.SubjectAccessReviewSpec{
		User: "alice", UID: "u1", Groups: []string{"crew"},
		Extra:              map[string]authorizationv1.ExtraValue{"berth.dev/tenant": {"galaxy"}, "berth.dev/space": {"solar-two"}, "berth.dev/space-tenant": {"solar"}, "example.com/roles": {"admin"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "default", Verb: "get", Version: "v1", Resource: "pods", Name: "mine-too"},
	}
	if got := last.Load(); !reflect.DeepEqual(got, want) {
		t.Errorf("it is asked %+v", got)
	}
	// In another space, it is another question. Users that the space knows itself, and impersonated ones, are of its tenant.
	for _, name := range []string{"alice", "bob"} {
		_, _, _ = lunar.Authorize(identity.With(t.Context(), &identity.Identity{Name: "root", Tenant: "system"}), getPod("mine", &user.DefaultInfo{Name: name}))
		if got := last.Load(); got.User != name || fmt.Sprint(got.Extra) != "map[berth.dev/space:[lunar] berth.dev/space-tenant:[lunar] berth.dev/tenant:[lunar]]" {
			t.Errorf("in another space, it is asked %+v", got)
		}
	}
	path := authorizer.AttributesRecord{User: alice, Verb: "get", Path: "/metrics"}
	if decision, _, err := solar.Authorize(ctx, path); decision != authorizer.DecisionNoOpinion || err != nil || last.Load().NonResourceAttributes == nil || last.Load().NonResourceAttributes.Path != "/metrics" {
		t.Errorf("of a path: %v, %v, %+v", decision, err, last.Load())
	}
	// It isn't asked about nobody, about what Berth does itself, and about what is too large to remember.
	server.Asked.Store(0)
	huge := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{"example.com/x": {strings.Repeat("x", 1<<20)}}}
	for reason, decide := range map[string]func() (authorizer.Decision, string, error){
		"nobody": func() (authorizer.Decision, string, error) {
			return solar.Authorize(ctx, getPod("mine", &user.DefaultInfo{Name: user.Anonymous}))
		},
		"no user": func() (authorizer.Decision, string, error) { return solar.Authorize(ctx, getPod("mine", nil)) },
		"itself": func() (authorizer.Decision, string, error) {
			return solar.Authorize(inside.Mark(ctx), getPod("mine", alice))
		},
		"a large user": func() (authorizer.Decision, string, error) { return solar.Authorize(ctx, getPod("mine", huge)) },
		"a large name": func() (authorizer.Decision, string, error) {
			return solar.Authorize(ctx, getPod(strings.Repeat("x", 1<<20), alice))
		},
	} {
		if decision, _, err := decide(); decision != authorizer.DecisionNoOpinion || err != nil || server.Asked.Load() != 0 {
			t.Errorf("%s: %v, %v, asked %d times", reason, decision, err, server.Asked.Load())
		}
	}
	if (*accessreview.Webhook)(nil).For("solar", of("solar")) != nil {
		t.Error("no webhook decides")
	}
}

// A7, L3: a space that floods a webhook which hangs waits alone: others have places, and what was answered before is answered at once.
// Nothing is allowed by it.
func TestASpaceThatFloodsTheWebhookWaitsAlone(t *testing.T) {
	hang := make(chan struct{})
	server := serve(t, func(r *http.Request, asked *authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
		if asked.User != "alice" {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		}
		return authorizationv1.SubjectAccessReviewStatus{Allowed: asked.User == "alice"}
	})
	webhook := open(t, accessreview.Config{File: server.Kubeconfig, Allowed: time.Minute, Unallowed: time.Minute})
	alice := &user.DefaultInfo{Name: "alice"}
	hostile := webhook.For("hostile", of("hostile"))
	if decision, _, err := hostile.Authorize(t.Context(), getPod("a", alice)); decision != authorizer.DecisionAllow {
		t.Fatal(decision, err)
	}
	var flood sync.WaitGroup
	var failed atomic.Int64
	spaces := []authorizer.Authorizer{hostile}
	for i := range 7 {
		spaces = append(spaces, webhook.For(fmt.Sprintf("hostile-%d", i), of("hostile")))
	}
	for _, space := range spaces {
		for i := range 100 {
			flood.Go(func() {
				if decision, _, err := space.Authorize(t.Context(), getPod("a", &user.DefaultInfo{Name: fmt.Sprintf("mallory-%d", i)})); decision != authorizer.DecisionNoOpinion {
					t.Errorf("it is decided %v, %v", decision, err)
				} else if err != nil {
					failed.Add(1)
				}
			})
		}
	}
	for begin := time.Now(); failed.Load() < int64(len(spaces)*100-64); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > 4*time.Second {
			t.Fatalf("%d fail at once", failed.Load())
		}
	}
	begin := time.Now()
	for reason, space := range map[string]authorizer.Authorizer{"what it has answered": hostile, "another space": webhook.For("quiet", of("quiet"))} {
		if decision, _, err := space.Authorize(t.Context(), getPod("a", alice)); decision != authorizer.DecisionAllow || err != nil {
			t.Errorf("%s, meanwhile: %v, %v", reason, decision, err)
		}
	}
	if took := time.Since(begin); took > 3*time.Second { // the answers that hang take 5 s
		t.Errorf("others wait %s", took)
	}
	close(hang)
	flood.Wait()
	if most := server.Most.Load(); most > 64 {
		t.Errorf("it is asked %d times at once", most)
	}
}

// A7: what can't be asked is not allowed, and a webhook that fails isn't asked for each request.
func TestAWebhookThatFailsAllowsNothing(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice"}
	for reason, answer := range map[string]http.HandlerFunc{
		"fails":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"speaks HTML": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"wants a login": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"status":{"allowed":true}}`))
		},
		"redirects": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusTemporaryRedirect) },
		"answers at length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true,"reason":%q}}`, strings.Repeat("x", 1<<20))
		},
	} {
		server := testwebhook.Serve(t, answer)
		space := open(t, accessreview.Config{File: server.Kubeconfig}).For("solar", of("solar"))
		for i := range 100 {
			if decision, _, err := space.Authorize(t.Context(), getPod(fmt.Sprint(i), alice)); decision != authorizer.DecisionNoOpinion || err == nil {
				t.Errorf("a webhook that %s: %v, %v", reason, decision, err)
			}
		}
		if n := server.Asked.Load(); n > 2 {
			t.Errorf("a webhook that %s is asked %d times", reason, n)
		}
	}
}

// A7: a file that can't be used is refused at the start, and what it names is in the copy for other processes.
func TestFilesOfWebhooksAreChecked(t *testing.T) {
	server := testwebhook.Serve(t, nil)
	dir := t.TempDir()
	write := func(text string) string {
		file := filepath.Join(dir, "kubeconfig")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const with = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {%s}}], clusters: [{name: c, cluster: {server: "%s"%s}}]}`
	for want, config := range map[string]accessreview.Config{
		"authorization-webhook-config-file=/nowhere":  {File: "/nowhere", Version: "v1"},
		"--authorization-webhook-version=v3":          {File: server.Kubeconfig, Version: "v3"},
		"authorization-webhook-cache-authorized-ttl=": {File: server.Kubeconfig, Version: "v1", Allowed: -1},
		"the user u has a tokenFile":                  {File: write(fmt.Sprintf(with, "tokenFile: /x", "https://example.com", "")), Version: "v1"},
	} {
		if err := config.Complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	plain := accessreview.Config{File: write(fmt.Sprintf(with, "", "http://example.com", "")), Version: "v1"}
	if err := plain.Complete(); err == nil || !strings.Contains(err.Error(), "must be https://") {
		t.Errorf("over plain HTTP: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	named := accessreview.Config{File: write(fmt.Sprintf(with, "", "https://example.com", ", certificate-authority: ca.crt")), Version: "v1"}
	if err := named.Complete(); err != nil || !strings.Contains(string(named.Kubeconfig), "certificate-authority-data:") {
		t.Errorf("the copy is %s, %v", named.Kubeconfig, err)
	}
}
