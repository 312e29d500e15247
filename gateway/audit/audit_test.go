// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2/ktesting"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/gateway/audit"
)

// collector is a webhook.
type collector struct {
	*httptest.Server

	mu     sync.Mutex
	events []auditv1.Event
	slow   chan struct{} // if set, answers wait until it is closed
}

func collect(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var list auditv1.EventList
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		c.events = append(c.events, list.Items...)
		slow := c.slow
		c.mu.Unlock()
		if slow != nil {
			<-slow
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) settings() v1alpha1.AuditWebhook {
	return v1alpha1.AuditWebhook{URL: c.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw})}
}

func (c *collector) all() []auditv1.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events
}

// audited returns a handler of a space of the tenant solar, or lunar.
func audited(t *testing.T, files audit.Files, settings func(tenant string) *v1alpha1.Audit) (handler func(space string) http.Handler, a *audit.Auditor) {
	t.Helper()
	logger, _ := ktesting.NewTestContext(t)
	a, err := audit.New(audit.Config{
		Files: files, SettingsOf: func(tenant, _ string) *v1alpha1.Audit { return settings(tenant).DeepCopy() }, Logger: logger,
		UserOf: func(*http.Request) user.Info { return &user.DefaultInfo{Name: "alice", Groups: []string{"crew"}} },
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(space string) http.Handler {
		return a.Audited(strings.Split(space, "-")[0], space, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	}, a
}

func logged(t *testing.T, path string) (events []auditv1.Event) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		events = append(events, event)
	}
	return events
}

// X7: each tenant has a log of its own, with the requests to its spaces, and a webhook gets those of its tenant alone.
func TestATenantHasALogAndAWebhookOfItsOwn(t *testing.T) {
	dir, hook := t.TempDir(), collect(t)
	settings := &v1alpha1.Audit{Webhook: hook.settings()}
	of, a := audited(t, audit.Files{Logs: audit.Logs{Dir: dir, MaxSize: 1, MaxBackups: 1}}, func(tenant string) *v1alpha1.Audit {
		if tenant == "solar" {
			return settings
		}
		return nil
	})
	for _, space := range []string{"solar", "solar-b", "lunar"} {
		of(space).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/pods/x", nil))
	}
	a.Stop(t.Context())
	solar, lunar := logged(t, filepath.Join(dir, "solar.log")), logged(t, filepath.Join(dir, "lunar.log"))
	if len(solar) != 2 || len(lunar) != 1 || len(hook.all()) != 2 {
		t.Fatalf("%d and %d events in the logs, and %d at the webhook", len(solar), len(lunar), len(hook.all()))
	}
	e := solar[1]
	if e.User.Username != "alice" || e.ObjectRef.Name != "x" || e.ResponseStatus.Code != http.StatusTeapot || e.Annotations["berth.dev/tenant"] != "solar" || e.Annotations["berth.dev/space"] != "solar-b" || e.Level != auditv1.LevelMetadata {
		t.Errorf("recorded %+v", e)
	}
}

// X7: a tenant's policy says what is recorded. Levels with bodies record none.
func TestATenantsPolicySaysWhatIsRecorded(t *testing.T) {
	dir := t.TempDir()
	policy := `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "None", "verbs": ["get"]}, {"level": "RequestResponse"}]}`
	settings := &v1alpha1.Audit{Policy: &runtime.RawExtension{Raw: []byte(policy)}}
	if errs := audit.Check(settings, field.NewPath("spec", "audit")); len(errs) > 0 {
		t.Fatal(errs)
	}
	of, a := audited(t, audit.Files{Logs: audit.Logs{Dir: dir, MaxSize: 1, MaxBackups: 1}}, func(string) *v1alpha1.Audit { return settings })
	defer a.Stop(t.Context())
	of("solar").ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/v1/pods/x", nil))
	of("solar").ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/default/secrets", strings.NewReader(`{"secret": "text"}`)))
	events := logged(t, filepath.Join(dir, "solar.log"))
	if len(events) == 0 || events[len(events)-1].Verb != "create" || events[len(events)-1].RequestObject != nil {
		t.Errorf("recorded %+v", events)
	}
	for _, e := range events {
		if e.Verb == "get" {
			t.Errorf("recorded what the policy leaves out: %+v", e)
		}
	}
}

// X7: bad settings name the field.
func TestBadSettingsNameTheField(t *testing.T) {
	for want, settings := range map[string]*v1alpha1.Audit{
		"spec.audit.policy":           {Policy: &runtime.RawExtension{Raw: []byte(`{"kind": "Policy"}`)}},
		"spec.audit.webhook.url":      {Webhook: v1alpha1.AuditWebhook{URL: "https://u:p@example.com"}},
		"spec.audit.webhook.caBundle": {Webhook: v1alpha1.AuditWebhook{URL: "https://example.com", CABundle: []byte("x")}},
	} {
		errs := audit.Check(settings, field.NewPath("spec", "audit"))
		if len(errs) != 1 || errs[0].Field != want {
			t.Errorf("%v, want one of %s", errs, want)
		}
	}
	for flag, files := range map[string]audit.Files{
		"audit-policy-file":         {Policy: "missing"},
		"audit-webhook-config-file": {Webhook: "missing"},
		"audit-log-maxbackup":       {Logs: audit.Logs{Dir: t.TempDir(), MaxSize: 1}},
	} {
		if _, err := audit.New(audit.Config{Files: files}); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%v does not name --%s", err, flag)
		}
	}
}

// X7, L3: what a client sends, and a policy of the tenant adds, makes an event only so large.
func TestHostileEventsAreBounded(t *testing.T) {
	dir := t.TempDir()
	of, a := audited(t, audit.Files{Logs: audit.Logs{Dir: dir, MaxSize: 1, MaxBackups: 1}}, func(string) *v1alpha1.Audit { return nil })
	defer a.Stop(t.Context())
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods?x="+strings.Repeat("é", 30_000), nil)
	r.Header.Set("User-Agent", strings.Repeat("u", 60_000))
	r.Header.Set("Impersonate-User", strings.Repeat("i", 60_000))
	of("solar").ServeHTTP(httptest.NewRecorder(), r)
	info, err := os.Stat(filepath.Join(dir, "solar.log"))
	if err != nil || info.Size() > 12<<10 {
		t.Errorf("%d bytes for one request: %v", info.Size(), err)
	}
	if events := logged(t, filepath.Join(dir, "solar.log")); len(events) != 1 || len(events[0].UserAgent) < 1000 {
		t.Errorf("recorded %+v", events)
	}
}

// X7: a disk that is full, or a log that can't be written for another reason, keeps no request from being served.
func TestRequestsAreServedWhileTheLogCanNotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "solar.log"), 0o700); err != nil {
		t.Fatal(err)
	}
	of, a := audited(t, audit.Files{Logs: audit.Logs{Dir: dir, MaxSize: 1, MaxBackups: 1}}, func(string) *v1alpha1.Audit { return nil })
	defer a.Stop(t.Context())
	w := httptest.NewRecorder()
	of("solar").ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/default/secrets", nil))
	if w.Code != http.StatusTeapot {
		t.Errorf("the response has the code %d", w.Code)
	}
}

// X7, L3: a webhook that does not answer holds up neither requests nor the end of the process, and a bounded number of events wait for it.
func TestHostileWebhooksHoldUpNobody(t *testing.T) {
	hook := collect(t)
	hook.slow = make(chan struct{})
	settings := &v1alpha1.Audit{Webhook: hook.settings()}
	of, a := audited(t, audit.Files{}, func(string) *v1alpha1.Audit { return settings })
	for i := range 5000 {
		of("solar").ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, fmt.Sprintf("/api/v1/pods?n=%d", i), nil))
	}
	ended, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	a.Stop(ended)
	close(hook.slow)
	a.Stop(t.Context()) // when all has been sent
	if n := len(hook.all()); n < 500 || n > 1100 {
		t.Errorf("%d events of 5000 were sent", n)
	}
}

// X7, L3: a flood of one tenant leaves others their part of the queue of the platform's webhook.
func TestHostileFloodsLeaveOthersTheWebhookOfThePlatform(t *testing.T) {
	hook := collect(t)
	hook.slow = make(chan struct{})
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: hook.URL, CertificateAuthorityData: hook.settings().CABundle}
	config.Contexts["c"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c"}, "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	of, a := audited(t, audit.Files{Webhook: file}, func(string) *v1alpha1.Audit { return nil })
	for _, tenant := range append(slices.Repeat([]string{"flood"}, 3000), "lunar") {
		of(tenant).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil))
	}
	close(hook.slow)
	a.Stop(t.Context())
	sent := map[string]int{}
	for _, e := range hook.all() {
		sent[e.Annotations["berth.dev/tenant"]]++
	}
	if sent["lunar"] != 1 || sent["flood"] < 100 || sent["flood"] > 300 {
		t.Errorf("sent %v", sent)
	}
}

// X7: a webhook neither fills the memory nor leads elsewhere.
func TestHostileRepliesOfWebhooksAreBounded(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	for name, answer := range map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		},
		"endless": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 100)
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked <- struct{}{}
				answer(w, r)
			}))
			t.Cleanup(server.Close)
			settings := &v1alpha1.Audit{Webhook: v1alpha1.AuditWebhook{URL: server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}}
			of, a := audited(t, audit.Files{}, func(string) *v1alpha1.Audit { return settings })
			of("solar").ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil))
			ended, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			a.Stop(ended) // it tries again for longer
			if len(asked) == 0 || elsewhere.Load() > 0 {
				t.Errorf("asked %d times, and %d times elsewhere", len(asked), elsewhere.Load())
			}
		})
	}
}
