// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/shard"
)

const (
	firstRestart = time.Second
	lastRestart  = time.Minute
	// firstPoll and lastPoll are the pauses between two questions whether a space serves.
	firstPoll = 10 * time.Millisecond
	lastPoll  = time.Second
	// statusTimeout limits how long a list of spaces waits for one process.
	statusTimeout = 2 * time.Second
	// stopTime is how long a process may take to end cleanly: as long as a platform.
	stopTime = 20 * time.Second
	// actTimeout limits operations of a process without another limit: it is as long as a space may take to start.
	actTimeout = 2 * time.Minute
	// answerTime is how long a process may take to respond that an operation has timed out.
	answerTime = 5 * time.Second
	// callTimeout limits the commands that begin or end a space, or send its keys. They include the time in which a
	// space stops, stopTime, and are retried. Without a limit, a process that somebody has taken over would block the
	// platform, which does not reconcile the space in the meantime.
	callTimeout = stopTime
	// maxAnswer is the maximum size of a response about a space, in bytes: of each status, [State], and metric. They
	// have a few KiB, and a multiple of their size when they are decoded. Somebody may have taken over the process.
	maxAnswer = 64 << 10
	// maxConditions is the maximum number of conditions of a space.
	maxConditions = 16
	// maxComplaint is how many bytes of the last output of a process are kept.
	maxComplaint = 4 << 10
)

// Process is the process of one space. It is restarted whenever it ends. It is safe for concurrent use.
type Process struct {
	space, dir string
	prepare    func(ctx context.Context) error
	run        func(ctx context.Context) error
	logger     logr.Logger
	client     *control.Client
	handler    http.Handler
	transport  *http.Transport
	access     encodedAccess
	strangers  *lru.Cache // maps [sha256.Size]byte of visitors to the time.Time until which the space gives them nothing
	// With, if set, is called when the process is started, with a context that ends when it is stopped. It must be set before Start.
	With func(ctx context.Context)
	// Lasts, if set, reports whether a request lasts, such as a watch, so that Disconnect ends it. It must be set before the first request.
	Lasts func(*http.Request) bool

	done chan struct{}
	// began is closed when the process has run for the first time, and serving says that its space was ready then.
	began      chan struct{}
	beginOnce  sync.Once
	serving    atomic.Bool
	requests   context.Context //nolint:containedctx // ends requests that last
	disconnect context.CancelFunc

	mu      sync.Mutex
	stop    context.CancelFunc // nil until Start is called
	stopped bool
	running *os.Process // nil while none runs
	since   time.Time
	failure string // why it does not run; empty if it does
	server  bool   // failure is of the database server with the store
}

// New returns the process of a space. Until Start is called, its space is starting. prepare creates what the space
// needs, before the process first runs; if it fails, it is retried. command returns a process that calls [Serve] on
// dir, and that ends when its standard input is closed, so that it never outlives this process.
func New(space, dir string, prepare func(ctx context.Context) error, command func() *exec.Cmd, logger logr.Logger) *Process {
	p := newProcess(space, dir, Sockets(dir), prepare, logger)
	p.run = func(ctx context.Context) error { return p.runChild(ctx, command()) }
	return p
}

// NewRemote is New for a process that something else runs, such as the kubelet of a node, so that it outlives this
// process. run makes sure that the process exists and serves, calls ready when it does, and returns when ctx ends, or
// with an error, to be called again. dir contains no files of the process; that it exists means that the space has one.
func NewRemote(space, dir string, at Endpoint, prepare func(ctx context.Context) error, run func(ctx context.Context, p *Process, ready func()) error, logger logr.Logger) *Process {
	p := newProcess(space, dir, at, prepare, logger)
	p.run = func(ctx context.Context) error { return run(ctx, p, func() { p.set("") }) }
	return p
}

func newProcess(space, dir string, at Endpoint, prepare func(ctx context.Context) error, logger logr.Logger) *Process {
	p := &Process{
		space: space, dir: dir, prepare: prepare, logger: logger.WithValues("space", space),
		client: control.NewClientTo(at.where, maxAnswer, at.commands), done: make(chan struct{}), began: make(chan struct{}), since: time.Now(),
		strangers: lru.New(rememberedStrangers),
	}
	p.requests, p.disconnect = context.WithCancel(context.Background())
	forwarding, transport := proxy(at)
	p.transport = transport
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.Lasts != nil && p.Lasts(r) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(p.requests, cancel)()
			r = r.WithContext(ctx)
		}
		forwarding.ServeHTTP(w, r)
	})
	return p
}

// Start keeps the process running until Stop. Further calls do nothing.
func (p *Process) Start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil || p.stopped {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go p.keep(ctx)
	if p.With != nil {
		go safego.Run("follow the process of a space", func() { p.With(ctx) }, nil)
	}
}

func (p *Process) keep(ctx context.Context) {
	defer close(p.done)
	pause, prepared := firstRestart, false
	for {
		began := time.Now()
		var err error
		if !prepared {
			err = p.open(ctx)
			prepared = err == nil
		}
		if prepared {
			err = p.run(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > lastRestart {
			pause = firstRestart
		}
		p.logger.Error(err, "The space's process does not run; it is started again", "in", pause)
		p.fail(err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, lastRestart)
	}
}

// open prepares what the process needs.
func (p *Process) open(ctx context.Context) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of the space's process: %w", err)
	}
	if err := p.prepare(ctx); err != nil {
		return fmt.Errorf("prepare the space: %w", err)
	}
	return nil
}

// runChild runs the process once. When ctx ends, it is asked to end.
func (p *Process) runChild(ctx context.Context, cmd *exec.Cmd) error {
	var complaint tail
	cmd.Stderr = &complaint
	input, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start the space's process: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the space's process: %w", err)
	}
	p.set("")
	p.setRunning(cmd.Process)
	defer p.setRunning(nil)
	asked := context.AfterFunc(ctx, func() { _ = input.Close() })
	defer asked()
	_ = cmd.Wait() // its state has the result
	if words := strings.TrimSpace(complaint.String()); words != "" {
		return fmt.Errorf("the space's process ended: %s", words)
	}
	return fmt.Errorf("the space's process ended: %s", cmd.ProcessState)
}

func (p *Process) set(failure string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure, p.server, p.since = failure, false, time.Now()
	if failure == "" {
		p.beginOnce.Do(func() { close(p.began) })
	}
}

func (p *Process) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure, p.server, p.since = err.Error(), errors.Is(err, kine.ErrServer), time.Now()
}

func (p *Process) setRunning(process *os.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = process
}

// killTime is how long a process may take to end after it is killed.
const killTime = 5 * time.Second

// Stop ends the process, if it was started, and waits for that. After stopTime, or when ctx ends, the process is
// killed. The error says if it still runs.
func (p *Process) Stop(ctx context.Context) error {
	p.mu.Lock()
	stop := p.stop
	p.stopped = true
	p.mu.Unlock()
	if stop == nil {
		return nil
	}
	stop()
	defer p.transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	if p.running != nil {
		_ = p.running.Kill()
	}
	p.mu.Unlock()
	select {
	case <-p.done:
		return nil
	case <-time.After(killTime):
		return fmt.Errorf("the process of space %s does not end", p.space)
	}
}

// Handler returns the handler of the space's API.
func (p *Process) Handler() http.Handler { return p.handler }

// Status asks the process for the status of its space.
func (p *Process) Status(ctx context.Context) shard.Status {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var said shard.Status
	err := p.client.Do(ctx, http.MethodGet, "/spaces/"+p.space, &said)
	if status, ok := checkedStatus(said, time.Now()); err == nil && ok {
		status.Name = p.space
		return status
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: shard.ReasonStarting,
		Message: "the space's process is starting", LastTransitionTime: metav1.NewTime(p.since),
	}
	if p.failure != "" {
		ready.Reason, ready.Message = shard.ReasonFailed, p.failure
	}
	status := shard.Status{Name: p.space, Conditions: []metav1.Condition{ready}}
	if p.server {
		status.Conditions = append(status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionStoreHealthy, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnreachable,
			Message: p.failure + "; check the server, and the DSN in the Secret of spec.store.secretName", LastTransitionTime: metav1.NewTime(p.since),
		})
	}
	return status
}

// Await returns when the space is awake or asleep in the process, or returns why it is not when ctx ends.
func (p *Process) Await(ctx context.Context) error {
	var last string
	for {
		status := p.Status(ctx)
		ready := status.Conditions[0]
		if ready.Status == metav1.ConditionTrue {
			return nil
		}
		if last = ready.Message; ready.Reason == shard.ReasonFailed {
			return errors.New(last)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", context.Cause(ctx), last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// AwaitServing returns when the process runs, and the space is awake or asleep in it, or when ctx ends. It waits until then whatever fails.
func (p *Process) AwaitServing(ctx context.Context) error {
	select {
	case <-p.began:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		ready := p.Status(ctx).Conditions[0]
		if ready.Status == metav1.ConditionTrue {
			p.serving.Store(true)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", context.Cause(ctx), ready.Message)
		case <-time.After(pause):
		}
	}
}

// Serving reports whether AwaitServing has succeeded.
func (p *Process) Serving() bool { return p.serving.Load() }

// Disconnect ends the watches, and other requests that last, which are forwarded to the process. Others end by themselves: one that was cut could
// have been processed. It is called when another platform has the process.
func (p *Process) Disconnect() { p.disconnect() }

// Get sends a GET request for a command of the process, and decodes the response into out.
func (p *Process) Get(ctx context.Context, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return p.client.Do(ctx, http.MethodGet, path, out)
}

// Wake wakes the space in its process; see [shard.Shard.Wake].
func (p *Process) Wake(ctx context.Context) error { return p.act(ctx, "wake") }

// Sleep puts the space to sleep; its process keeps running.
func (p *Process) Sleep(ctx context.Context) error { return p.act(ctx, "sleep") }

// Restart makes the space read its keys again; see [shard.Shard.Restart].
func (p *Process) Restart(ctx context.Context) error { return p.act(ctx, "restart") }

func (p *Process) act(ctx context.Context, verb string) error {
	timeout := actTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = time.Until(deadline)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+answerTime)
	defer cancel()
	query := url.Values{"timeout": {timeout.String()}}
	return p.client.Do(ctx, http.MethodPost, "/spaces/"+p.space+"/"+verb+"?"+query.Encode(), nil)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

var _ io.Writer = &tail{}

// Write implements [io.Writer].
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if more := len(t.text) - maxComplaint; more > 0 {
		t.text = append([]byte(nil), t.text[more:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
