// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	kubeaudit "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	serverfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/safego"
)

// Files are paths of files that say what is recorded, and where. Each may be empty.
type Files struct {
	// Policy is a file with a Policy of audit.k8s.io, for tenants that set none. Without it, each request is recorded once.
	Policy string
	// Webhook is a kubeconfig file for a server that gets the events of all tenants.
	Webhook string
	// Logs says where the logs of tenants are.
	Logs Logs
}

// Config is what an [Auditor] needs. The functions are called for each request, and concurrently.
type Config struct {
	Files
	// SettingsOf returns the settings of a tenant, or of a space without one; nil if there are none.
	SettingsOf func(tenant, space string) *v1alpha1.Audit
	// UserOf returns the user of a request whose credential has been accepted.
	UserOf func(r *http.Request) user.Info
	Logger klog.Logger
}

// Auditor records requests. It is safe for concurrent use.
type Auditor struct {
	config   Config
	usual    kubeaudit.PolicyRuleEvaluator
	requests *request.RequestInfoFactory
	platform *hook // nil if the platform has no webhook
	logs     *logs
	lost     rate.Sometimes

	mu      sync.Mutex
	tenants map[string]*tenant
}

// tenant is what is done with the events of a tenant.
type tenant struct {
	name     string
	settings *v1alpha1.Audit // from which the rest was made
	policy   kubeaudit.PolicyRuleEvaluator
	webhook  *hook // nil if it has none
	used     time.Time
	open     int // requests
}

// Beyond tenantsMost tenants, those without a request for idleTenant are forgotten. What waits for their webhooks is sent first.
const (
	tenantsMost = 64
	idleTenant  = 10 * time.Minute
)

// New returns an auditor, which runs until [Auditor.Stop]. The error is a [*fielderror.Error] of a flag.
func New(c Config) (*Auditor, error) {
	usual, err := readPolicyFile(c.Policy)
	if err != nil {
		return nil, err
	}
	a := &Auditor{
		config: c, usual: policy.NewPolicyRuleEvaluator(usual), lost: rate.Sometimes{Interval: time.Minute}, tenants: map[string]*tenant{},
		requests: &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
	}
	a.logs = newLogs(c.Logs, func(err error) {
		a.lost.Do(func() {
			c.Logger.Error(err, "Events of the audit are lost, because a log can't be written", "dir", c.Logs.Dir)
		})
	})
	if err := a.logs.check(); err != nil {
		return nil, err
	}
	if c.Webhook != "" {
		if a.platform, err = platformHook(c.Webhook); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// stopTimeout limits how long a stop waits for webhooks: a new process may wait for this one.
const stopTimeout = 5 * time.Second

// Stop sends what waits for webhooks, until ctx ends, and for 5 seconds at most.
func (a *Auditor) Stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	a.mu.Lock()
	hooks := []*hook{a.platform}
	for _, t := range a.tenants {
		hooks = append(hooks, t.webhook)
	}
	a.mu.Unlock()
	sent := make(chan struct{})
	var sending sync.WaitGroup
	safego.Go(&sending, "stop the audit", func() {
		defer close(sent)
		for _, h := range hooks {
			h.stop()
		}
		for _, h := range hooks {
			h.stopped()
		}
	}, func(err error) { a.config.Logger.Error(err, "Could not stop the audit") })
	select {
	case <-sent:
	case <-ctx.Done():
		a.config.Logger.Error(ctx.Err(), "Events of the audit were not sent to all webhooks")
	}
}

// Audited returns a handler that records requests to a space of a tenant, for the tenant. tenant is "" for a space without one, and space
// for a request that reaches none. The handler must be called with the path inside the space.
func (a *Auditor) Audited(tenant, space string, next http.Handler) http.Handler {
	settings := a.config.SettingsOf(tenant, space)
	if !a.records(settings) {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := a.requests.NewRequestInfo(r)
		if err != nil {
			next.ServeHTTP(w, r) // the API server will return the error
			return
		}
		ctx := request.WithRequestInfo(request.WithUser(r.Context(), a.config.UserOf(r)), info)
		name := cmp.Or(tenant, "space-without-tenant."+space)
		to := a.begin(name, settings)
		defer a.end(to)
		sink := &sink{auditor: a, tenant: to, name: name, annotations: annotationsOf(tenant, space, r)}
		audited := filters.WithAudit(next, sink, to.policy, serverfilters.BasicLongRunningRequestCheck(
			sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward")))
		filters.WithAuditInit(audited).ServeHTTP(w, r.WithContext(ctx))
	})
}

// records reports whether events of a tenant with these settings go anywhere.
func (a *Auditor) records(settings *v1alpha1.Audit) bool {
	return a.config.Logs.Dir != "" || a.platform != nil || settings != nil && settings.Webhook.URL != ""
}

func annotationsOf(tenant, space string, r *http.Request) annotations {
	set := annotations{}
	if space != "" {
		set[spaceAnnotation] = space
	}
	if tenant != "" {
		set[tenantAnnotation] = tenant
	}
	if who := identity.From(r.Context()); who != nil && who.Tenant != "" {
		set[userTenantAnnotation] = who.Tenant
	}
	if other := r.Header.Get("Impersonate-User"); other != "" {
		set[impersonateAnnotation] = other
	}
	return set
}

// begin returns what is done with the events of a request for a tenant with these settings. end must be called.
func (a *Auditor) begin(name string, settings *v1alpha1.Audit) *tenant {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tenants[name]
	if t != nil && equality.Semantic.DeepEqual(t.settings, settings) {
		t.used, t.open = now, t.open+1
		return t
	}
	if t != nil {
		delete(a.tenants, name)
		a.stopUnused(t)
	}
	a.forget(now)
	t = &tenant{name: name, settings: settings, policy: a.usual, used: now, open: 1}
	if own, err := policyOf(settings); err == nil && own != nil { // settings are checked before they get here
		t.policy = policy.NewPolicyRuleEvaluator(own)
	}
	if settings != nil && settings.Webhook.URL != "" {
		hook, err := newHook(&settings.Webhook)
		if err != nil {
			a.config.Logger.Error(err, "Could not set up the webhook for the audit of a tenant", "tenant", name)
		}
		t.webhook = hook
	}
	a.tenants[name] = t
	return t
}

// end ends a request. Events of requests that last reach the webhook that there was when they began.
func (a *Auditor) end(t *tenant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t.used, t.open = time.Now(), t.open-1
	a.stopUnused(t)
}

// stopUnused stops the webhook of a tenant that has other settings now, or has been forgotten, after its last request. The auditor must be
// locked.
func (a *Auditor) stopUnused(t *tenant) {
	if t.open == 0 && a.tenants[t.name] != t {
		t.webhook.stop()
	}
}

// forget removes idle tenants. The auditor must be locked.
func (a *Auditor) forget(now time.Time) {
	if len(a.tenants) < tenantsMost {
		return
	}
	for name, t := range a.tenants {
		if t.open == 0 && now.Sub(t.used) > idleTenant {
			delete(a.tenants, name)
			a.stopUnused(t)
		}
	}
}

// sink gets the events of one request.
type sink struct {
	auditor     *Auditor
	tenant      *tenant
	name        string
	annotations annotations
}

// ProcessEvents implements [kubeaudit.Sink]. A request is served although its event could not be recorded.
func (s *sink) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, event := range events {
		bounded := s.annotations.bounded(event)
		s.auditor.logs.write(s.name, bounded)
		toPlatform, toTenant := s.auditor.platform.send(bounded), s.tenant.webhook.send(bounded)
		if !toPlatform || !toTenant {
			s.auditor.lost.Do(func() {
				s.auditor.config.Logger.Error(nil, "Events of the audit are lost, because webhooks are too slow", "tenant", s.name, "ofPlatform", !toPlatform, "ofTenant", !toTenant)
			})
		}
	}
	return true
}
