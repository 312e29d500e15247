// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
)

// newProcesses prepares a process for each space that is to have its own (T9).
func (p *platform) newProcesses() error {
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the command for dedicated spaces: %w", err)
	}
	options := dedicatedOptions{
		dataDir: p.options.dataDir, hostKubeconfig: p.hostKubeconfig, idleAfter: p.options.idleAfter, sync: p.options.sync, nodes: p.options.nodes,
		limits: p.options.limits, settings: p.options.settings, network: p.options.network,
		endpoint: strings.TrimSuffix(p.endpoint(""), gateway.Path("")), pods: p.options.pods,
		traces: p.options.traces, verbosity: p.options.verbosity,
	}
	p.processes = map[string]*dedicated.Process{}
	for _, name := range p.options.dedicated {
		prepare := func(ctx context.Context) error { return p.prepare(ctx, name) }
		p.processes[name] = dedicated.New(name, dedicatedDir(p.options.dataDir, name), prepare, func() *exec.Cmd {
			return exec.Command(path, dedicatedArgs(options, name)...)
		}, p.logger)
	}
	return nil
}

// startDedicated starts these processes. One that does not start is tried again,
// and the others serve.
func (p *platform) startDedicated(context.Context) error {
	for name, process := range p.processes {
		process.Start()
		p.first.each = append(p.first.each, func(ctx context.Context) {
			if err := p.awaitDedicated(ctx, process); err != nil {
				if ctx.Err() == nil {
					p.say("Space %s does not start in its process, and is tried again: %v", name, err)
				}
				return
			}
			p.say("Space %s is ready, in a process of its own", name)
		})
	}
	p.onStop(p.stopDedicated)
	return nil
}

// stopDedicated stops all processes at once: together they have as long as the
// shard has.
func (p *platform) stopDedicated(ctx context.Context) {
	var wg sync.WaitGroup
	for _, process := range p.processes {
		wg.Go(func() { process.Stop(ctx) })
	}
	wg.Wait()
}

// awaitDedicated waits until a process has its space awake.
func (p *platform) awaitDedicated(ctx context.Context, process *dedicated.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return process.Await(ctx)
}

// List, Status, Wake and Sleep are of all spaces, wherever they run.

func (p *platform) List() []shard.Status {
	list := p.shard.List()
	for _, process := range p.processes {
		list = append(list, process.Status(context.Background()))
	}
	slices.SortFunc(list, func(a, b shard.Status) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Status implements spaceSet.
func (p *platform) Status(name string) (shard.Status, bool) {
	if process := p.processes[name]; process != nil {
		return process.Status(context.Background()), true
	}
	return p.shard.Status(name)
}

// Wake implements spaceSet.
func (p *platform) Wake(ctx context.Context, name string) error {
	if process := p.processes[name]; process != nil {
		return process.Wake(ctx)
	}
	return p.shard.WakeNow(ctx, name)
}

// Sleep implements spaceSet.
func (p *platform) Sleep(ctx context.Context, name string) error {
	if process := p.processes[name]; process != nil {
		return process.Sleep(ctx)
	}
	return p.shard.Sleep(ctx, name)
}

func (p *platform) lookup(space string) http.Handler {
	if space == gateway.SystemSpace {
		return p.host.Handler()
	}
	if process := p.processes[space]; process != nil {
		return process.Handler()
	}
	return p.shard.Handler(space)
}

// verify is for [gateway.Router.Verify]. An embedded host is the admin's, who is no
// tenant; its API server verifies by itself.
func (p *platform) verify(space string, r *http.Request) (*http.Request, bool, error) {
	if space == gateway.SystemSpace && p.host.Handler() != nil {
		return r, true, nil
	}
	return p.shard.Verify(space, r)
}
