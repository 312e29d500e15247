// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	kubeaudit "k8s.io/apiserver/pkg/audit"
	kubewebhook "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	"k8s.io/apiserver/plugin/pkg/audit/log"
	"k8s.io/apiserver/plugin/pkg/audit/webhook"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/askwebhook"
	"github.com/berth-dev/berth/internal/fielderror"
)

// Logs are files with the events of tenants, one for each tenant. A flood of one tenant's events removes none of another's.
type Logs struct {
	// Dir is a directory; "-" is the standard output, and "" no log.
	Dir string
	// MaxSize is in MiB, and MaxBackups the number of full files that are kept of a tenant, besides the one that is written.
	MaxSize, MaxBackups int
}

type logs struct {
	Logs
	failed func(error)

	mu    sync.Mutex
	files map[string]kubeaudit.Backend // by tenant. They are kept, as each has a goroutine of its library, without an end
}

func newLogs(l Logs, failed func(error)) *logs {
	return &logs{Logs: l, failed: failed, files: map[string]kubeaudit.Backend{}}
}

// check makes the directory.
func (l *logs) check() error {
	if l.Dir == "" || l.Dir == "-" {
		return nil
	}
	if l.MaxSize < 1 {
		return fielderror.New("audit-log-maxsize", strconv.Itoa(l.MaxSize), "must be 1 MiB or more")
	}
	if l.MaxBackups < 1 {
		return fielderror.New("audit-log-maxbackup", strconv.Itoa(l.MaxBackups), "must be 1 or more")
	}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return fielderror.New("audit-log-dir", l.Dir, "%w", err)
	}
	return nil
}

func (l *logs) write(tenant string, event *auditinternal.Event) {
	if l.Dir != "" {
		l.of(tenant).ProcessEvents(event)
	}
}

func (l *logs) of(tenant string) kubeaudit.Backend {
	if l.Dir == "-" {
		tenant = ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	file := l.files[tenant]
	if file == nil {
		if l.Dir == "-" {
			file = log.NewBackend(&stdout{}, log.FormatJson, auditv1.SchemeGroupVersion)
		} else {
			rotated := &lumberjack.Logger{Filename: filepath.Join(l.Dir, tenant+".log"), MaxSize: l.MaxSize, MaxBackups: l.MaxBackups}
			file = log.NewBackend(&reporting{rotated, l.failed}, log.FormatJson, auditv1.SchemeGroupVersion)
		}
		l.files[tenant] = file
	}
	return file
}

// reporting reports errors itself: upstream's backend would print each event that is lost, such as while the disk is full.
type reporting struct {
	to     io.Writer
	failed func(error)
}

// Write implements [io.Writer]. It returns no error.
func (r *reporting) Write(p []byte) (int, error) {
	if _, err := r.to.Write(p); err != nil {
		r.failed(err)
	}
	return len(p), nil
}

// stdout is the standard output, with a line at a time.
type stdout struct{ mu sync.Mutex }

// Write implements [io.Writer].
func (s *stdout) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return os.Stdout.Write(p)
}

const (
	// waitingMost is how many events may wait for a webhook. Further ones are lost. Those of one tenant may be one in tenantsAtWebhook of
	// those of the platform's.
	waitingMost      = 1000
	tenantsAtWebhook = 8
	batchMost        = 100
	batchEvery       = 2 * time.Second
	// callTimeout limits one call of a webhook, and retryFirst is the pause before the second.
	callTimeout = 10 * time.Second
	retryFirst  = time.Second
)

// hook is a webhook to which events are sent in batches.
type hook struct {
	backend kubeaudit.Backend
	waiting *waiting
	end     func()
}

// newHook returns the webhook of a tenant, which must be stopped.
func newHook(settings *v1alpha1.AuditWebhook) (*hook, error) {
	config, err := askwebhook.At(settings.URL, settings.CABundle, callTimeout)
	if err != nil {
		return nil, err
	}
	return startHook(config, waitingMost)
}

// platformHook returns the webhook of a kubeconfig file, which must be stopped.
func platformHook(kubeconfig string) (*hook, error) {
	config, err := askwebhook.Load(kubeconfig, callTimeout)
	if err == nil {
		var h *hook
		if h, err = startHook(config, waitingMost/tenantsAtWebhook); err == nil {
			return h, nil
		}
	}
	return nil, fielderror.New("audit-webhook-config-file", kubeconfig, "%w", err)
}

// startHook returns a webhook for which so many events of one tenant may wait.
func startHook(config *rest.Config, perTenant int) (*hook, error) {
	// Backends of Kubernetes are for kubeconfig files; this is what they make of one.
	client, err := kubewebhook.NewGenericWebhook(kubeaudit.Scheme, kubeaudit.Codecs, config, []schema.GroupVersion{auditv1.SchemeGroupVersion}, backoff())
	if err != nil {
		return nil, fmt.Errorf("set up the webhook: %w", err)
	}
	counted := &waiting{Backend: webhook.NewDynamicBackend(client.RestClient, backoff()), perTenant: perTenant, of: map[string]int{}}
	h := &hook{waiting: counted, backend: buffered.NewBackend(counted, buffered.BatchConfig{BufferSize: waitingMost, MaxBatchSize: batchMost, MaxBatchWait: batchEvery})}
	ended := make(chan struct{})
	h.end = sync.OnceFunc(func() { close(ended) })
	return h, h.backend.Run(ended)
}

func backoff() wait.Backoff { return kubewebhook.DefaultRetryBackoffWithInitialDelay(retryFirst) }

// send has an event sent, unless too many wait. It reports whether it does. A nil hook sends nothing.
func (h *hook) send(event *auditinternal.Event) bool {
	if h == nil {
		return true
	}
	if !h.waiting.add(event) { // the library would print each one that is lost
		return false
	}
	return h.backend.ProcessEvents(event)
}

// stop sends what waits, and ends.
func (h *hook) stop() {
	if h != nil {
		h.end()
	}
}

// stopped returns when a hook that is stopped has sent what waited.
func (h *hook) stopped() {
	if h != nil {
		h.backend.Shutdown()
	}
}

// waiting counts the events that have not been sent, or given up.
type waiting struct {
	kubeaudit.Backend
	perTenant int

	mu  sync.Mutex
	all int
	of  map[string]int
}

// add reports whether an event may wait, and counts it then.
func (w *waiting) add(event *auditinternal.Event) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	tenant := tenantOfEvent(event)
	if w.all >= waitingMost || w.of[tenant] >= w.perTenant {
		return false
	}
	w.all++
	w.of[tenant]++
	return true
}

// ProcessEvents implements [kubeaudit.Sink].
func (w *waiting) ProcessEvents(events ...*auditinternal.Event) bool {
	defer w.remove(events)
	return w.Backend.ProcessEvents(events...)
}

func (w *waiting) remove(events []*auditinternal.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all -= len(events)
	for _, event := range events {
		tenant := tenantOfEvent(event)
		if w.of[tenant]--; w.of[tenant] == 0 {
			delete(w.of, tenant)
		}
	}
}
