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
func (u *up) newProcesses() error {
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the command for dedicated spaces: %w", err)
	}
	options := dedicatedOptions{
		dataDir: u.options.dataDir, hostKubeconfig: u.hostKubeconfig(), idleAfter: u.options.idleAfter,
		endpoint: strings.TrimSuffix(u.endpoint(""), gateway.Path("")),
	}
	u.processes = map[string]*dedicated.Process{}
	for _, name := range u.options.dedicated {
		u.processes[name] = dedicated.New(name, dedicatedDir(u.options.dataDir, name), func() *exec.Cmd {
			return exec.Command(path, dedicatedArgs(options, name)...)
		}, u.logger)
	}
	return nil
}

// startDedicated starts these processes, once what their spaces stand on is
// there, and waits for them.
func (u *up) startDedicated(ctx context.Context) error {
	for name, process := range u.processes {
		if err := u.prepare(ctx, name); err != nil {
			return err
		}
		if err := process.Start(); err != nil {
			return err
		}
		u.onStop(process.Stop)
	}
	var wg sync.WaitGroup
	for name, process := range u.processes {
		wg.Go(func() {
			if err := u.awaitDedicated(ctx, process); err != nil {
				u.say("Space %s does not start in its process, and is tried again: %v", name, err)
				return
			}
			u.say("Space %s is ready, in a process of its own", name)
		})
	}
	wg.Wait()
	return ctx.Err()
}

// awaitDedicated waits until a process has its space awake.
func (u *up) awaitDedicated(ctx context.Context, process *dedicated.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return process.Await(ctx)
}

// List, Status, Wake and Sleep are of all spaces, wherever they run.

func (u *up) List() []shard.Status {
	list := u.shard.List()
	for _, process := range u.processes {
		list = append(list, process.Status(context.Background()))
	}
	slices.SortFunc(list, func(a, b shard.Status) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Status implements spaceSet.
func (u *up) Status(name string) (shard.Status, bool) {
	if process := u.processes[name]; process != nil {
		return process.Status(context.Background()), true
	}
	return u.shard.Status(name)
}

// Wake implements spaceSet.
func (u *up) Wake(ctx context.Context, name string) error {
	if process := u.processes[name]; process != nil {
		return process.Wake(ctx)
	}
	return u.shard.Wake(ctx, name)
}

// Sleep implements spaceSet.
func (u *up) Sleep(ctx context.Context, name string) error {
	if process := u.processes[name]; process != nil {
		return process.Sleep(ctx)
	}
	return u.shard.Sleep(ctx, name)
}

func (u *up) lookup(space string) http.Handler {
	if space == gateway.SystemSpace {
		return u.host.Handler()
	}
	if process := u.processes[space]; process != nil {
		return process.Handler()
	}
	return u.shard.Handler(space)
}
