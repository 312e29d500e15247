// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/berth-dev/berth/bench/internal/probe"
	"github.com/berth-dev/berth/bench/internal/side"
)

// childVariable names the side that a child process is. It is unset in the parent.
const childVariable = "BERTH_BENCH_CHILD"

// child is a process that runs one side. It is this program, started again, so that neither side is part of the other's
// figures, nor the clients of any. It ends with the parent: its standard input does.
type child struct {
	side      string
	cmd       *exec.Cmd
	dir       string
	rpc       *rpc.Client
	complaint *tail         // to be read once ended is closed
	ended     chan struct{} // closed when the process has ended
}

// startChild starts a side. env is more environment. With apart, the host has a processor of its own.
func startChild(ctx context.Context, name string, args side.OpenArgs, apart bool, env ...string) (*child, error) {
	// Made here and not by the child, because upstream ends the process when a server is stopped in mid-start.
	dir, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a place for data: %w", err)
	}
	return startChildIn(ctx, dir, name, args, apart, env...)
}

// startChildIn is startChild with a directory for data, which is the child's from now on.
func startChildIn(ctx context.Context, dir, name string, args side.OpenArgs, apart bool, env ...string) (_ *child, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	command := []string{self}
	switch {
	case name == side.Flood:
		// Tenants have machines of their own: their clients must not take the processors of this one from the spaces that are measured. Linux takes a
		// processor from a process of this class as soon as another one can run; from one of a low priority, only after some milliseconds.
		command = []string{"chrt", "--idle", "0", self}
	case name == side.Host && apart:
		command = []string{"taskset", "-c", hostProcessor, self}
	}
	c := &child{side: name, dir: dir, complaint: &tail{}, ended: make(chan struct{}), cmd: exec.CommandContext(ctx, command[0], command[1:]...)}
	c.cmd.Dir = dir
	c.cmd.Env = append(append(os.Environ(), childVariable+"="+name), env...)
	c.cmd.Stderr = c.complaint
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.rpc = rpc.NewClient(side.Pipe{ReadCloser: out, In: in})
	go func() {
		defer close(c.ended)
		_ = c.cmd.Wait() // what it complained about says more
	}()
	if err := c.call(ctx, "Open", args, new(struct{})); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// call calls a method of the child's [Agent].
func (c *child) call(ctx context.Context, method string, args, reply any) error {
	call := c.rpc.Go("Agent."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
	case <-ctx.Done():
		return fmt.Errorf("%s: %s: %w", c.side, method, context.Cause(ctx))
	}
	var answer rpc.ServerError
	switch {
	case call.Error == nil:
		return nil
	case errors.As(call.Error, &answer):
		return fmt.Errorf("%s: %s: %w", c.side, method, call.Error)
	default:
		<-c.ended
		return fmt.Errorf("%s: %s: its process has ended: %s", c.side, method, c.complaint)
	}
}

// start starts a control plane and returns when it answers and a client has written to it, with the seconds that took.
func (c *child) start(ctx context.Context, name string) (*plane, float64, error) {
	return c.startBy(ctx, name, "Start", name)
}

// startStored is start of a space with a store.
func (c *child) startStored(ctx context.Context, name string, store side.Store) (*plane, float64, error) {
	return c.startBy(ctx, name, "StartStored", side.StartStoredArgs{Name: name, Store: store})
}

func (c *child) startBy(ctx context.Context, name, method string, args any) (*plane, float64, error) {
	begin := time.Now()
	var kubeconfig []byte
	if err := c.call(ctx, method, args, &kubeconfig); err != nil {
		return nil, 0, err
	}
	p, err := newPlane(c, name, kubeconfig)
	if err != nil {
		return nil, 0, err
	}
	if err := p.awaitWrite(ctx); err != nil {
		return nil, 0, err
	}
	return p, time.Since(begin).Seconds(), nil
}

// rest waits until the child is steady, at most for limit, and measures it.
func (c *child) rest(ctx context.Context, limit time.Duration) (f probe.Footprint, err error) {
	err = c.call(ctx, "Rest", limit, &f)
	return f, err
}

// peak returns the largest resident set of the child since peak was called before, in MiB.
func (c *child) peak(ctx context.Context) (mib float64, err error) {
	err = c.call(ctx, "Peak", struct{}{}, &mib)
	return mib, err
}

// profile takes a profile of the child.
func (c *child) profile(ctx context.Context, args side.ProfileArgs) ([]byte, error) {
	var path string
	if err := c.call(ctx, "Profile", args, &path); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: read profile: %w", c.side, err)
	}
	return data, nil
}

// stop ends the child and waits for it. How well it ended matters to nobody: its data is thrown away.
func (c *child) stop() error {
	_ = c.rpc.Close()
	select {
	case <-c.ended:
	case <-time.After(side.StopTime):
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("remove the data of %s: %w", c.side, err)
	}
	return nil
}

// kill ends the child as kill -9 does, and waits for that. Its data stays.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
}

// tail keeps the end of what a child complained about.
type tail struct{ end []byte }

func (t *tail) Write(b []byte) (int, error) {
	const most = 4 << 10
	t.end = append(t.end, b...)
	if len(t.end) > most {
		t.end = append(t.end[:0], t.end[len(t.end)-most:]...)
	}
	return len(b), nil
}

func (t *tail) String() string { return string(bytes.TrimSpace(t.end)) }

// hostProcessor is the one that the host has for itself with -apart.
const hostProcessor = "0"

// leaveToHost has this process, and so the sides that it starts, run on all processors but the host's.
func (b *bench) leaveToHost(ctx context.Context) error {
	last := runtime.NumCPU() - 1
	if last < 1 {
		return errors.New("-apart needs at least two processors")
	}
	others := fmt.Sprintf("1-%d", last)
	out, err := exec.CommandContext(ctx, "taskset", "-acp", others, strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		return fmt.Errorf("-apart: run on processors %s: %w: %s", others, err, out)
	}
	b.report.Note("the host has processor %s for itself, Berth and the clients have %s", hostProcessor, others)
	return nil
}
