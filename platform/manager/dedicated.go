// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/hostaccess"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/platform/spaceprocess"
	"github.com/berth-dev/berth/platform/specs"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/feed"
	"github.com/berth-dev/berth/vcluster/pki"
)

// newProcess returns the process of a dedicated space (T9). It does not start it.
func (m *Manager) newProcess(name string, spec v1alpha1.SpaceSpec) *dedicated.Process {
	process := m.newProcessOf(name, spec)
	process.Lasts = gateway.Lasts
	process.With = func(ctx context.Context) {
		var group sync.WaitGroup
		safego.Go(&group, "withdraw what a dedicated space has on the host", func() {
			process.FollowWithdrawals(ctx, func(ctx context.Context, wanted dedicated.Withdrawal) error {
				return m.syncs.Withdraw(ctx, name, wanted.Runs)
			})
		}, nil)
		safego.Go(&group, "let the requests to a dedicated space go on", func() {
			if process.AwaitServing(ctx) == nil {
				m.arrivals.Served(name)
			}
		}, nil)
		safego.Go(&group, "replicate the store of a dedicated space", func() { m.followStore(ctx, name, process) }, nil)
		m.followQuota(ctx, name, process)
		group.Wait()
	}
	return process
}

func (m *Manager) newProcessOf(name string, spec v1alpha1.SpaceSpec) *dedicated.Process {
	if m.pods != nil {
		return m.newPod(name, spec)
	}
	dir := datadir.Dedicated(m.config.DataDir, name)
	file := filepath.Join(dir, spaceprocess.ConfigFile)
	prepare := func(ctx context.Context) error {
		if where, err := m.storeLocation(name); err != nil || where != nil {
			return errors.Join(err, errNoPods)
		}
		d := process.Dedicated{Options: m.config.Options, Space: name, Closed: m.closed, Endpoint: strings.TrimSuffix(m.env.Endpoint(""), gateway.Path(""))}
		d.Spaces = []v1alpha1.Space{{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: specs.WithoutEnforced(spec)}}
		withoutSnapshots(&d)
		if err := errors.Join(d.Write(file), m.writeAccess(name, dir), m.writeDefinitions(name, dir), m.writeServingCA(dir)); err != nil {
			return err
		}
		if err := m.prepareDedicated(ctx, name); err != nil {
			return err
		}
		if err := m.giveServer(ctx, name, dir); err != nil {
			return err
		}
		if err := m.writeDeclared(name, dir); err != nil { // of which the account has the rights now
			return err
		}
		return m.access.Write(ctx, name, dir)
	}
	return dedicated.New(name, dir, prepare, func() *exec.Cmd { return m.config.DedicatedCommand(file) }, m.logger)
}

// remoteStore is the store of a dedicated space in its process, for its replica.
type remoteStore struct {
	feed.Client
	process *dedicated.Process
	admit   func(size int64) (end func(), err error)
}

// Copy implements [replicator.Remote].
func (s remoteStore) Copy(ctx context.Context, opening uint64, path string) (revision int64, row string, err error) {
	return s.process.CopyBase(ctx, opening, path, s.admit)
}

// followStore replicates the store of a dedicated space, as long as its process is the current one. The process gets no credentials for the bucket,
// and isn't told where it is.
func (m *Manager) followStore(ctx context.Context, name string, process *dedicated.Process) {
	if m.replicator == nil {
		return
	}
	// Until the store has been moved to its pod, nothing runs it.
	if err := wait.PollUntilContextCancel(ctx, newPoll, true, func(context.Context) (bool, error) {
		here, err := m.notMovedYet(name)
		return err == nil && !here, nil
	}); err != nil {
		return
	}
	foreign := m.pods != nil || snapshot.IsReceived(datadir.Space(m.config.DataDir, name)) // a process here may have a store of a pod
	m.replicator.Follow(ctx, name, remoteStore{feed.NewClient(process.Commands()), process, m.admitCopy(name)}, foreign)
}

// admitCopy returns what admits a copy of a dedicated space's store by its size: it must not be larger than the space's limit
// allows, and there must be space for it on the disk, beside other copies. A file has more than what counts towards the limit,
// for example free pages.
func (m *Manager) admitCopy(space string) func(size int64) (end func(), err error) {
	return func(size int64) (end func(), err error) {
		const slack = 64 << 20
		if most := 4*m.config.Specs.Limits(space).Of(bounds.StoreBytes) + slack; size > most {
			return nil, fmt.Errorf("it has %d bytes, at most %d are possible", size, most)
		}
		return m.volume.Reserve(size, true)
	}
}

// prepareDedicated isolates a dedicated space on the host, and returns when a shard has cached what the host has of it. The space's pods use
// the DNS of this process, and nothing else here lists the space again if that has failed: only starts of shared spaces do.
func (m *Manager) prepareDedicated(ctx context.Context, name string) error {
	if err := m.prepare(ctx, name); err != nil || m.config.Shard == "" {
		return err
	}
	return m.shard.Host().Own(ctx, name)
}

// writeServingCA writes the CA of the API endpoint into the directory of a dedicated space's process.
func (m *Manager) writeServingCA(dir string) error {
	if err := pki.WriteFile(filepath.Join(dir, hostaccess.ServingCAFile), m.servingCA()); err != nil {
		return fmt.Errorf("write the CA of the API endpoint: %w", err)
	}
	return nil
}

// writeAccess writes what a space enforces of its tenant into the directory of its process.
func (m *Manager) writeAccess(name, dir string) error {
	data, err := spaceprocess.EncodeAccess(m.config.Specs.Access(name).Get())
	if err == nil {
		err = pki.WriteFile(filepath.Join(dir, spaceprocess.AccessFile), data)
	}
	if err != nil {
		return fmt.Errorf("write what space %s enforces: %w", name, err)
	}
	return nil
}

// writeDefinitions writes the definitions that are shared with a space into the directory of its process. If they aren't known, the process
// keeps those that it has.
func (m *Manager) writeDefinitions(name, dir string) error {
	set, known := m.crdShares.Set(name)
	if !known {
		return nil
	}
	data, err := definitions.Encode(set)
	if err == nil {
		err = pki.WriteFile(filepath.Join(dir, spaceprocess.DefinitionsFile), data)
	}
	if err != nil {
		return fmt.Errorf("write what is shared with space %s: %w", name, err)
	}
	return nil
}

// errUnsent is returned while the process of a space has not confirmed what the space is to enforce.
var errUnsent = errors.New("the space's process does not have the change yet")

// enforce records a spec that differs from the one before only in what the space follows while it runs. It has been set already. A
// space that sleeps is not woken.
func (m *Manager) enforce(ctx context.Context, name string, want *applied) error {
	if err := want.write(datadir.Space(m.config.DataDir, name)); err != nil {
		return err
	}
	if process := m.processes.get(name); process != nil {
		// What the process starts with comes first: it may start again before the message reaches it.
		if err := m.saveAccess(ctx, name, want.Spec); err != nil {
			return err
		}
		if _, err := process.Enforce(ctx, m.config.Specs.Access(name).Get()); err != nil {
			return fmt.Errorf("%w: %w", errUnsent, err)
		}
	}
	m.applied.set(name, want)
	return nil
}

// SendAccess sends the processes of all dedicated spaces what these enforce, what is shared with them, and what is synced of them, because that
// has changed. It doesn't wait for them. Whom it doesn't reach gets it with the next status.
func (m *Manager) SendAccess(ctx context.Context) {
	for name := range m.processes.all() {
		m.sendSynced(name)
		m.sends.Begin(name, "send what a space enforces", func() {
			process := m.processes.get(name)
			if process == nil || ctx.Err() != nil {
				return
			}
			if _, err := process.Enforce(ctx, m.config.Specs.Access(name).Get()); err != nil {
				m.logger.V(1).Info("A dedicated space's process does not have what its space enforces; Berth retries", "space", name, "reason", err.Error())
			}
		})
	}
}

// sendSynced sends the process of a dedicated space the definitions that are shared with the space, and then what is synced of it. It doesn't
// wait for the process, which a tenant may have taken over. If that isn't reached, it gets them with the next status.
func (m *Manager) sendSynced(name string) {
	m.syncSends.Begin(name, "send what is shared with a space, and synced of it", func() {
		process := m.processes.get(name)
		if process == nil || m.sending.Err() != nil {
			return
		}
		m.sendDefinitions(m.sending, process, name)
		m.sendDeclared(m.sending, process, name)
	})
}

// sendDefinitions sends the process of a dedicated space the definitions that are shared with the space.
func (m *Manager) sendDefinitions(ctx context.Context, process *dedicated.Process, name string) {
	set, known := m.crdShares.Set(name)
	if !known {
		return // it keeps those that it has
	}
	if err := process.Define(ctx, set); err != nil {
		m.logger.V(1).Info("A dedicated space's process does not have the shared definitions; Berth retries", "space", name, "reason", err.Error())
	}
}

// saveAccess writes what a space enforces to where its process starts from. If that is not there yet, it is written with the rest.
func (m *Manager) saveAccess(ctx context.Context, name string, spec v1alpha1.SpaceSpec) error {
	if m.pods != nil {
		if _, made := m.pods.at.Load(name); !made {
			return nil
		}
		_, err := m.applyPod(ctx, name, spec)
		return err
	}
	dir := datadir.Dedicated(m.config.DataDir, name)
	if _, err := os.Stat(filepath.Join(dir, spaceprocess.ConfigFile)); err != nil {
		return nil
	}
	return m.writeAccess(name, dir)
}

// stopDedicated stops all processes at once. Together, they have as much time as the shard.
func (m *Manager) stopDedicated(ctx context.Context) {
	var wg sync.WaitGroup
	for _, process := range m.processes.all() {
		wg.Go(func() {
			if err := process.Stop(ctx); err != nil {
				m.logger.Error(err, "Could not stop a dedicated space in order")
			}
		})
	}
	wg.Wait()
}

// List returns the statuses of all spaces, including dedicated ones, ordered by name.
func (m *Manager) List() []shard.Status {
	list := slices.Concat(m.shard.List(), m.processes.statuses())
	deleted := m.deletions.statuses()
	list = slices.DeleteFunc(list, func(s shard.Status) bool {
		return slices.ContainsFunc(deleted, func(d shard.Status) bool { return d.Name == s.Name })
	})
	list = append(list, deleted...)
	slices.SortFunc(list, func(a, b shard.Status) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Status returns the status of a space; ok is false if there is no such space.
func (m *Manager) Status(name string) (status shard.Status, ok bool) {
	if status, ok := m.deletions.status(name); ok {
		return status, true
	}
	if process := m.processes.get(name); process != nil {
		return process.Status(context.Background()), true
	}
	return m.shard.Status(name)
}

// Wake wakes a space, and returns when it serves requests.
func (m *Manager) Wake(ctx context.Context, name string) error {
	if process := m.processes.get(name); process != nil {
		return process.Wake(ctx)
	}
	return m.shard.WakeNow(ctx, name)
}

// Sleep puts a space to sleep, and returns when it sleeps.
func (m *Manager) Sleep(ctx context.Context, name string) error {
	if process := m.processes.get(name); process != nil {
		return process.Sleep(ctx)
	}
	return m.shard.Sleep(ctx, name)
}

// processes are the processes of dedicated spaces, by name of the space. It is safe for concurrent use.
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

// add fails if there are already most processes.
func (p *processes) add(space string, process *dedicated.Process, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.of[space]; !there && len(p.of) >= most {
		return false
	}
	if p.of == nil {
		p.of = map[string]*dedicated.Process{}
	}
	p.of[space] = process
	return true
}

// swap replaces the process of a space in one step.
func (p *processes) swap(space string, process *dedicated.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, has := p.of[space]; has {
		p.of[space] = process
	}
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

// statuses asks all processes at once, because one that hangs blocks until its timeout.
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
