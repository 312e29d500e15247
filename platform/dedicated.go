// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/vcluster/pki"
)

// DedicatedSpace is what the process of a dedicated space is told, in a file.
type DedicatedSpace struct {
	ProcessConfig
	Space          string
	HostKubeconfig string // that of the cluster which the process is a pod of if empty
	Endpoint       string // URL of the platform's TLS listener, without a path
}

// ReadDedicatedSpace reads what the process of a dedicated space is told.
func ReadDedicatedSpace(file string) (*DedicatedSpace, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of a dedicated space: %w", err)
	}
	d := &DedicatedSpace{}
	if err := json.Unmarshal(data, d); err != nil {
		return nil, fmt.Errorf("read the configuration of a dedicated space: %s: %w", file, err)
	}
	return d, d.complete()
}

func (d *DedicatedSpace) write(file string) error {
	data, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("write the configuration of space %s: %w", d.Space, err)
	}
	if err := pki.WriteFile(file, data); err != nil {
		return fmt.Errorf("write the configuration of space %s: %w", d.Space, err)
	}
	return nil
}

// newProcess prepares the process of a space that is to have its own (T9).
func (p *Platform) newProcess(name string, spec v1alpha1.SpaceSpec) *dedicated.Process {
	dir := DedicatedDir(p.config.DataDir, name)
	file := filepath.Join(dir, "config.json")
	prepare := func(ctx context.Context) error {
		d := DedicatedSpace{ProcessConfig: p.config.ProcessConfig, Space: name, HostKubeconfig: p.hostKubeconfig, Endpoint: strings.TrimSuffix(p.Endpoint(""), gateway.Path(""))}
		d.Spaces = []v1alpha1.Space{{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}}
		return errors.Join(d.write(file), p.prepare(ctx, name))
	}
	return dedicated.New(name, dir, prepare, func() *exec.Cmd { return p.config.DedicatedCommand(file) }, p.logger)
}

// stopDedicated stops all processes at once: together they have as long as the
// shard has.
func (p *Platform) stopDedicated(ctx context.Context) {
	var wg sync.WaitGroup
	for _, process := range p.processes.all() {
		wg.Go(func() {
			if err := process.Stop(ctx); err != nil {
				p.logger.Error(err, "stop dedicated space")
			}
		})
	}
	wg.Wait()
}

// List returns the statuses of all spaces, those of dedicated ones included, ordered by name.
func (p *Platform) List() []shard.Status {
	list := slices.Concat(p.shard.List(), p.processes.statuses())
	deleted := p.deletions.statuses()
	list = slices.DeleteFunc(list, func(s shard.Status) bool {
		return slices.ContainsFunc(deleted, func(d shard.Status) bool { return d.Name == s.Name })
	})
	list = append(list, deleted...)
	slices.SortFunc(list, func(a, b shard.Status) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Status of a space. ok is false if there is no space of the name.
func (p *Platform) Status(name string) (status shard.Status, ok bool) {
	if status, ok := p.deletions.status(name); ok {
		return status, true
	}
	if process := p.processes.get(name); process != nil {
		return process.Status(context.Background()), true
	}
	return p.shard.Status(name)
}

// Wake wakes a space, and returns when it serves requests.
func (p *Platform) Wake(ctx context.Context, name string) error {
	if process := p.processes.get(name); process != nil {
		return process.Wake(ctx)
	}
	return p.shard.WakeNow(ctx, name)
}

// Sleep puts a space to sleep, and returns when it sleeps.
func (p *Platform) Sleep(ctx context.Context, name string) error {
	if process := p.processes.get(name); process != nil {
		return process.Sleep(ctx)
	}
	return p.shard.Sleep(ctx, name)
}

func (p *Platform) lookup(space string) http.Handler {
	if space == gateway.SystemSpace {
		return p.host.Handler()
	}
	if process := p.processes.get(space); process != nil {
		return process.Handler()
	}
	return p.shard.Handler(space)
}

// verify is for [gateway.Router.Verify]. An embedded host is the admin's, who is no
// tenant; its API server verifies by itself.
func (p *Platform) verify(space string, r *http.Request) (*http.Request, bool, error) {
	if space == gateway.SystemSpace && p.host.Handler() != nil {
		return r, true, nil
	}
	return p.shard.Verify(space, r)
}

// processes are those of dedicated spaces, by space. It is safe for concurrent use.
type processes struct {
	mu sync.RWMutex
	of map[string]*dedicated.Process
}

// get returns the process of a space; nil if it has none.
func (p *processes) get(space string) *dedicated.Process {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.of[space]
}

// add fails if there are as many as there may be.
func (p *processes) add(space string, process *dedicated.Process, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.of) >= most {
		return false
	}
	if p.of == nil {
		p.of = map[string]*dedicated.Process{}
	}
	p.of[space] = process
	return true
}

func (p *processes) remove(space string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, space)
}

// all returns a copy.
func (p *processes) all() map[string]*dedicated.Process {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return maps.Clone(p.of)
}

// statuses asks all at once, as one that hangs takes its time to be given up.
func (p *processes) statuses() []shard.Status {
	all := p.all()
	list, i := make([]shard.Status, len(all)), 0
	var wg sync.WaitGroup
	for _, process := range all {
		to := &list[i]
		wg.Go(func() { *to = process.Status(context.Background()) })
		i++
	}
	wg.Wait()
	return list
}
