// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/rpc"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/bench/internal/probe"
)

// side is what a child process runs: control planes of one kind.
type side interface {
	// start starts a control plane and returns a kubeconfig for it. That it is ready is for the caller to find out.
	start(ctx context.Context, name string) (kubeconfig []byte, err error)
	stop(ctx context.Context, name string) error
	// close stops all of them.
	close(ctx context.Context) error
}

// sleeper is a side whose control planes can sleep. A request wakes them.
type sleeper interface {
	sleep(ctx context.Context, name string) error
	// awake counts those that do not sleep.
	awake() int
	// remove leaves nothing of one: no state, no host object.
	remove(ctx context.Context, name string) error
}

// The sides. The names are read by people, in errors.
const (
	hostSide  = "the host"
	berthSide = "berth"
	// platformSide is all of `berth up`, where berthSide is what serves spaces.
	platformSide = "the platform"
	stockSide    = "stock"
	// floodSide has no control planes: it is the clients that flood one.
	floodSide = "the flood"
)

func openSide(ctx context.Context, name, dir string, args OpenArgs) (side, error) {
	switch name {
	case hostSide:
		return openHost(ctx, dir)
	case berthSide:
		return openBerth(ctx, dir, args)
	case platformSide:
		return openPlatform(ctx, dir, args)
	case stockSide:
		return openStock(dir), nil
	case floodSide:
		return openFlood(args.Flooded)
	default:
		return nil, fmt.Errorf("unknown side %q", name)
	}
}

// runChild is a side's process. State goes below the working directory; the parent's calls come by standard input.
func runChild(ctx context.Context, name string) error {
	// What the servers log would drown the table; a failure reaches the parent as an error.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the place for data: %w", err)
	}
	agent := &Agent{ctx: ctx, name: name, dir: dir}
	server := rpc.NewServer()
	if err := server.Register(agent); err != nil {
		return fmt.Errorf("serve the parent: %w", err)
	}
	calls := pipe{os.Stdin, os.Stdout}
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
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), childStopTime)
	defer cancel()
	return agent.side.close(stopping)
}

// Agent is what the parent calls in a child, by net/rpc.
type Agent struct {
	ctx       context.Context
	name, dir string
	side      side
}

// Open makes the child ready to start control planes. It is the first call.
func (a *Agent) Open(args OpenArgs, _ *struct{}) (err error) {
	a.side, err = openSide(a.ctx, a.name, a.dir, args)
	return err
}

// OpenArgs are for the side of spaces.
type OpenArgs struct {
	Host      []byte        // kubeconfig of the host cluster
	IdleAfter time.Duration // when a space that woke by itself is to sleep again; never if 0
	Flooded   []byte        // kubeconfig of the space that floodSide floods
}

// Start starts a control plane.
func (a *Agent) Start(name string, kubeconfig *[]byte) (err error) {
	*kubeconfig, err = a.side.start(a.ctx, name)
	return err
}

// Stop stops a control plane.
func (a *Agent) Stop(name string, _ *struct{}) error { return a.side.stop(a.ctx, name) }

// Sleep puts a space to sleep.
func (a *Agent) Sleep(name string, _ *struct{}) error {
	s, ok := a.side.(sleeper)
	if !ok {
		return errors.ErrUnsupported
	}
	return s.sleep(a.ctx, name)
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

// Awake counts the spaces that do not sleep.
func (a *Agent) Awake(_ struct{}, n *int) error {
	s, ok := a.side.(sleeper)
	if !ok {
		return errors.ErrUnsupported
	}
	*n = s.awake()
	return nil
}

// Remove deletes a space.
func (a *Agent) Remove(name string, _ *struct{}) error {
	s, ok := a.side.(sleeper)
	if !ok {
		return errors.ErrUnsupported
	}
	return s.remove(a.ctx, name)
}

// Answers counts what became of the requests of a flood.
func (a *Agent) Answers(_ struct{}, answers *FloodAnswers) error {
	f, ok := a.side.(*flood)
	if !ok {
		return errors.ErrUnsupported
	}
	*answers = FloodAnswers{Answered: f.answered.Load(), Refused: f.refused.Load()}
	return nil
}

// FloodAnswers are how many requests of a flood were answered, and how many refused.
type FloodAnswers struct{ Answered, Refused int64 }

// Rest waits until this process is steady, at most for limit, and measures it.
func (a *Agent) Rest(limit time.Duration, f *probe.Footprint) (err error) {
	*f, err = probe.Rest(a.ctx, limit)
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
	if args.Kind == cpuProfile {
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

// ProfileArgs says which profile to take: of cpuProfile for how long, or one that runtime/pprof knows, now.
type ProfileArgs struct {
	Kind string
	For  time.Duration
}

const cpuProfile = "cpu"
