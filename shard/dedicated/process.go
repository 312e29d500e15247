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
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/shard"
)

const (
	firstRestart = time.Second
	lastRestart  = time.Minute
	// statusTimeout bounds what a list of spaces waits for one process.
	statusTimeout = 2 * time.Second
	// stopTime is how long a process has to end in order: as long as a platform has.
	stopTime = 20 * time.Second
	// actTimeout bounds what a process is asked to do by somebody who says nothing of it: as long as a space may take to
	// start.
	actTimeout = 2 * time.Minute
	// answerTime is how long a process has to answer that it has not done within that time what it was asked to do.
	answerTime = 5 * time.Second
	// callTimeout bounds the commands that begin or end a space, or send its keys. They take what a space needs to stop,
	// for which it has stopTime, and are tried again. Without a bound, a process that somebody has taken over would hold
	// up the platform, which doesn't reconcile the space meanwhile.
	callTimeout = stopTime
	// maxAnswer bounds what a process says of its space, in bytes: each status, [State] and metric. They have a few KiB,
	// and take many times their size when they are decoded. Somebody may have taken over the process.
	maxAnswer = 64 << 10
	// maxConditions bounds the conditions of a space.
	maxConditions = 16
	// maxComplaint bounds what is kept of the last words of a process.
	maxComplaint = 4 << 10
)

// Process is the process of one space, started again whenever it ends. Its
// methods may be called concurrently.
type Process struct {
	space, dir string
	prepare    func(ctx context.Context) error
	run        func(ctx context.Context) error
	logger     logr.Logger
	client     *control.Client
	handler    http.Handler
	transport  *http.Transport

	done chan struct{}

	mu      sync.Mutex
	stop    context.CancelFunc // nil until it is started
	stopped bool
	running *os.Process // nil while none does
	since   time.Time
	failure string // why it does not run; empty if it does
}

// New prepares the process of a space: until Start is called its space is
// starting. prepare makes what the space stands on, before the process first runs;
// if it fails it is tried again. command makes a process that calls [Serve] on dir, and that ends when
// its standard input does, so that none outlives this one.
func New(space, dir string, prepare func(ctx context.Context) error, command func() *exec.Cmd, logger logr.Logger) *Process {
	p := newProcess(space, dir, Sockets(dir), prepare, logger)
	p.run = func(ctx context.Context) error { return p.runChild(ctx, command()) }
	return p
}

// NewRemote is New for a process that somebody else runs, such as the kubelet of a node: it goes on when this one ends.
// run has it be there and serve, calls ready when it does, and returns when ctx ends, or with an error to be called
// again. dir holds nothing of the process, and says by being there that the space has one.
func NewRemote(space, dir string, at Endpoint, prepare func(ctx context.Context) error, run func(ctx context.Context, p *Process, ready func()) error, logger logr.Logger) *Process {
	p := newProcess(space, dir, at, prepare, logger)
	p.run = func(ctx context.Context) error { return run(ctx, p, func() { p.set("") }) }
	return p
}

func newProcess(space, dir string, at Endpoint, prepare func(ctx context.Context) error, logger logr.Logger) *Process {
	p := &Process{
		space: space, dir: dir, prepare: prepare, logger: logger.WithValues("space", space),
		client: control.NewClientTo(at.where, maxAnswer, at.commands), done: make(chan struct{}), since: time.Now(),
	}
	p.handler, p.transport = proxy(at)
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
		p.set(err.Error())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, lastRestart)
	}
}

// open makes what the process needs.
func (p *Process) open(ctx context.Context) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of the space's process: %w", err)
	}
	if err := p.prepare(ctx); err != nil {
		return fmt.Errorf("prepare the space: %w", err)
	}
	return nil
}

// runChild runs the process once. When ctx ends it is asked to end.
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
	_ = cmd.Wait() // its state tells
	if words := strings.TrimSpace(complaint.String()); words != "" {
		return fmt.Errorf("the space's process ended: %s", words)
	}
	return fmt.Errorf("the space's process ended: %s", cmd.ProcessState)
}

func (p *Process) set(failure string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure, p.since = failure, time.Now()
}

func (p *Process) setRunning(process *os.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = process
}

// killTime is how long a process has to be gone once it is killed.
const killTime = 5 * time.Second

// Stop ends a process, if it was started, and waits for it. What has not ended by stopTime, or the end of ctx, is
// killed; the error says that it is not gone even so.
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

// Handler leads to the space's API.
func (p *Process) Handler() http.Handler { return p.handler }

// Status asks the process how its space is.
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
	return shard.Status{Name: p.space, Conditions: []metav1.Condition{ready}}
}

// Await returns when the process has its space awake or asleep, or says why it
// has not by the end of ctx.
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

// Get asks the process for what its commands serve at path, and decodes it into out.
func (p *Process) Get(ctx context.Context, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return p.client.Do(ctx, http.MethodGet, path, out)
}

// Wake wakes the space in its process; see [shard.Shard.Wake].
func (p *Process) Wake(ctx context.Context) error { return p.act(ctx, "wake") }

// Sleep puts the space to sleep; its process runs on.
func (p *Process) Sleep(ctx context.Context) error { return p.act(ctx, "sleep") }

// Restart has the space read its keys anew; see [shard.Shard.Restart].
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

// tail keeps the end of what is written.
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
