// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package side has what the child processes of the benchmark run: control planes of one kind, and the calls by which the parent
// starts, stops, and measures them.
package side

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/rpc"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/bench/internal/probe"
)

// Side is what a child process runs: control planes of one kind.
type Side interface {
	// Start starts a control plane and returns a kubeconfig for it. That it is ready is for the caller to find out.
	Start(ctx context.Context, name string) (kubeconfig []byte, err error)
	Stop(ctx context.Context, name string) error
	// Close stops all of them.
	Close(ctx context.Context) error
}

// sleeper is a side whose control planes can sleep. A request wakes them.
type sleeper interface {
	Sleep(ctx context.Context, name string) error
	// Awake counts those that do not sleep.
	Awake() int
	// Remove leaves nothing of one: no state, no host object.
	Remove(ctx context.Context, name string) error
}

// The sides. The names are read by people, in errors.
const (
	Host  = "the host"
	Berth = "berth"
	// Platform is all of `berth up`, where Berth is what serves spaces.
	Platform = "the platform"
	// ShardPrefix is followed by the name of a shard: all of `berth serve`, as one of several processes of a platform.
	ShardPrefix = "shard "
	// Operator is all of `berth operator`.
	Operator = "the operator"
	Stock    = "stock"
	// Flood has no control planes: it is the clients that flood one.
	Flood = "the flood"
)

// Flooder is a side that counts what became of its requests.
type Flooder interface {
	Answers() FloodAnswers
}

// OpenFlood opens the side that floods a space, whose kubeconfig it gets.
type OpenFlood func(kubeconfig []byte) (Side, error)

func (a *Agent) open(args OpenArgs) (Side, error) {
	if shard, is := strings.CutPrefix(a.name, ShardPrefix); is {
		return openShard(a.ctx, a.dir, shard, args)
	}
	switch a.name {
	case Host:
		return openHost(a.ctx, a.dir)
	case Berth:
		return openBerth(a.ctx, a.dir, args)
	case Platform:
		return openPlatform(a.ctx, a.dir, args)
	case Operator:
		return openOperator(a.ctx, args)
	case Stock:
		return openStock(a.dir), nil
	case Flood:
		return a.flood(args.Flooded)
	default:
		return nil, fmt.Errorf("unknown side %q", a.name)
	}
}

// Run is a side's process. State goes below the working directory; the parent's calls come by standard input.
func Run(ctx context.Context, name string, flood OpenFlood) error {
	// What the servers log would drown the table; a failure reaches the parent as an error.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the place for data: %w", err)
	}
	agent := &Agent{ctx: ctx, name: name, dir: dir, flood: flood}
	server := rpc.NewServer()
	if err := server.Register(agent); err != nil {
		return fmt.Errorf("serve the parent: %w", err)
	}
	calls := Pipe{ReadCloser: os.Stdin, In: os.Stdout}
	os.Stdout = os.Stderr // whatever prints must not disturb the calls
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.ServeConn(calls)
	}()
	select {
	case <-served:
	case <-ctx.Done():
	}
	if agent.side == nil {
		return nil
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTime)
	defer cancel()
	return agent.side.Close(stopping)
}

// Agent is what the parent calls in a child, by net/rpc.
type Agent struct {
	ctx       context.Context
	name, dir string
	flood     OpenFlood
	side      Side
}

// Open makes the child ready to start control planes. It is the first call.
func (a *Agent) Open(args OpenArgs, _ *struct{}) (err error) {
	a.side, err = a.open(args)
	return err
}

// OpenArgs are for the side of spaces.
type OpenArgs struct {
	Host      []byte        // kubeconfig of the host cluster
	IdleAfter time.Duration // when a space that woke by itself is to sleep again; never if 0
	Flooded   []byte        // kubeconfig of the space that Flood floods
}

// Start starts a control plane.
func (a *Agent) Start(name string, kubeconfig *[]byte) (err error) {
	*kubeconfig, err = a.side.Start(a.ctx, name)
	return err
}

// Stop stops a control plane.
func (a *Agent) Stop(name string, _ *struct{}) error { return a.side.Stop(a.ctx, name) }

// Sleep puts a space to sleep.
func (a *Agent) Sleep(name string, _ *struct{}) error {
	s, ok := a.side.(sleeper)
	if !ok {
		return errors.ErrUnsupported
	}
	return s.Sleep(a.ctx, name)
}

// Restart stops the platform and starts it again, and returns how long that takes until it serves.
func (a *Agent) Restart(_ struct{}, took *time.Duration) (err error) {
	p, ok := a.side.(*spacePlatform)
	if !ok {
		return errors.ErrUnsupported
	}
	*took, err = p.restart(a.ctx)
	return err
}

// Bare serves a space without the gateway, and returns a kubeconfig for that.
func (a *Agent) Bare(name string, kubeconfig *[]byte) (err error) {
	p, ok := a.side.(*spacePlatform)
	if !ok {
		return errors.ErrUnsupported
	}
	*kubeconfig, err = p.Bare(name)
	return err
}

// Address returns HOST:PORT of a shard, which stays when it is started again.
func (a *Agent) Address(_ struct{}, address *string) error {
	p, ok := a.side.(*spacePlatform)
	if !ok {
		return errors.ErrUnsupported
	}
	*address = p.config.Listen
	return nil
}

// Multiply stops a shard, has it have copies of a space that sleeps, and starts it again.
func (a *Agent) Multiply(args MultiplyArgs, _ *struct{}) error {
	p, ok := a.side.(*spacePlatform)
	if !ok {
		return errors.ErrUnsupported
	}
	return p.multiply(a.ctx, args)
}

// Now measures this process as it is.
func (a *Agent) Now(_ struct{}, f *probe.Footprint) (err error) {
	*f, err = probe.Now()
	return err
}

// Awake counts the spaces that do not sleep.
func (a *Agent) Awake(_ struct{}, n *int) error {
	s, ok := a.side.(sleeper)
	if !ok {
		return errors.ErrUnsupported
	}
	*n = s.Awake()
	return nil
}

// Remove deletes a space.
func (a *Agent) Remove(name string, _ *struct{}) error {
	s, ok := a.side.(sleeper)
	if !ok {
		return errors.ErrUnsupported
	}
	return s.Remove(a.ctx, name)
}

// Answers counts what became of the requests of a flood.
func (a *Agent) Answers(_ struct{}, answers *FloodAnswers) error {
	f, ok := a.side.(Flooder)
	if !ok {
		return errors.ErrUnsupported
	}
	*answers = f.Answers()
	return nil
}

// FloodAnswers are how many requests of a flood were answered, and how many refused.
type FloodAnswers struct{ Answered, Refused int64 }

// Rest waits until this process is steady, at most for limit, and measures it.
func (a *Agent) Rest(limit time.Duration, f *probe.Footprint) (err error) {
	*f, err = probe.Rest(a.ctx, limit)
	return err
}

// Peak returns the largest resident set of this process since Peak was called before, in MiB.
func (a *Agent) Peak(_ struct{}, mib *float64) (err error) {
	*mib, err = probe.Peak()
	return err
}

// CPU measures the cores used over d.
func (a *Agent) CPU(d time.Duration, cores *float64) (err error) {
	*cores, err = probe.CPU(a.ctx, d)
	return err
}

// Profile writes a profile of the kind that args names to a file, since what is sent to the parent stays in this process's heap.
func (a *Agent) Profile(args ProfileArgs, path *string) (err error) {
	var data []byte
	if args.Kind == CPUProfile {
		data, err = probe.CPUProfile(a.ctx, args.For)
	} else {
		data, err = probe.Profile(args.Kind)
	}
	if err != nil {
		return err
	}
	*path = filepath.Join(a.dir, args.Kind+".profile")
	if err := os.WriteFile(*path, data, 0o600); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	return nil
}

// ProfileArgs says which profile to take: of CPUProfile for how long, or one that runtime/pprof knows, now.
type ProfileArgs struct {
	Kind string
	For  time.Duration
}

// CPUProfile is the kind of a profile of processor time.
const CPUProfile = "cpu"

// ReadyTime is how long a control plane may take until it serves.
const ReadyTime = 2 * time.Minute

// RemoveTime is how long the host may take to empty a namespace.
const RemoveTime = 2 * time.Minute

// StopTime is how long a child may take to end once it is told to.
const StopTime = 30 * time.Second

// Pipe is a child's standard output and input.
type Pipe struct {
	io.ReadCloser
	In io.WriteCloser
}

// Write implements [io.Writer].
func (p Pipe) Write(b []byte) (int, error) { return p.In.Write(b) }

// Close closes both.
func (p Pipe) Close() error { return errors.Join(p.In.Close(), p.ReadCloser.Close()) }
