// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/kubeconfig"
	"github.com/berth-dev/berth/shard"
)

// renewInterval is how often certificates are checked. They are renewed half a day before they expire, so the exact
// interval does not matter.
const renewInterval = time.Hour

// renewPoll is how often the interval is compared with the machine's clock. Timers stop while a machine is suspended,
// but certificates still expire.
const renewPoll = time.Minute

// startRenewing renews the kubeconfigs in the data directory, including those of spaces that sleep, until the platform
// stops.
func (m *Manager) startRenewing(context.Context) error {
	run, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	authority := &publisher{spaces: m.shard, port: m.servingCA, published: m.servingCA(), logger: m.logger}
	go func() {
		defer close(done)
		select { // it writes the same files
		case <-m.starts.done:
		case <-run.Done():
			return
		}
		ticker := time.NewTicker(renewPoll)
		defer ticker.Stop()
		for renewed := (time.Time{}); ; {
			if now := time.Now().Round(0); now.Sub(renewed) >= renewInterval {
				renewed = now
				if err := m.env.KeepServerCA(); err != nil {
					m.logger.Error(err, "Could not read the CA of the API endpoint; Berth retries")
				}
				m.renewKubeconfigs(run)
				authority.publish(run)
			}
			m.renewHostTokens(run)
			m.renewOwners()
			select {
			case <-ticker.C:
			case <-run.Done():
				return
			}
		}
	}()
	m.undoStart.add(func(context.Context) { stop(); <-done })
	return nil
}

// publisher makes all spaces publish the CA bundle of the API endpoint again, in kube-root-ca.crt of each namespace,
// when it has another CA, which is once in some years. A space does that when it wakes. If its pods don't trust the
// endpoint, they can't wake it, so the publisher has to.
type publisher struct {
	spaces interface {
		Names() []string
		Sleep(ctx context.Context, space string) error
		WarmUp(space string)
	}
	port      func() []byte
	published []byte
	left      []string // the spaces that have not published it yet
	logger    klog.Logger
}

// sleepTimeout limits how long to wait until one space has no work under way.
const sleepTimeout = time.Minute

func (p *publisher) publish(ctx context.Context) {
	if current := p.port(); !bytes.Equal(current, p.published) {
		p.published, p.left = current, p.spaces.Names()
	}
	p.left = slices.DeleteFunc(p.left, func(name string) (published bool) {
		sleep, cancel := context.WithTimeout(ctx, sleepTimeout)
		defer cancel()
		err := p.spaces.Sleep(sleep, name)
		if errors.Is(err, shard.ErrUnknown) {
			return true // it no longer exists
		}
		if err != nil && ctx.Err() == nil {
			p.logger.Error(err, "Could not publish the CA of the API endpoint in a space; Berth retries", "space", name)
		}
		p.spaces.WarmUp(name)
		return err == nil
	})
}

func (m *Manager) renewKubeconfigs(ctx context.Context) {
	names, err := datadir.Kubeconfigs(m.config.DataDir)
	if err != nil {
		m.logger.Error(err, "Could not list the kubeconfigs to renew; Berth retries")
	}
	for _, name := range names {
		end, err := m.changes.Begin(name, "getting a new certificate")
		if err != nil {
			continue // it may be being deleted; for all others, the next renewal is early enough
		}
		if config, err := kubeconfig.Renew(m.config.DataDir, name, "", m.env.CA); err != nil {
			m.logger.Error(err, "Could not renew a kubeconfig; Berth retries", "space", name)
		} else {
			m.publishKubeconfig(ctx, name, config)
			m.saveFiles(ctx, name) // in case its CA is new
		}
		end()
	}
}

// renewOwners has the spaces reconciled whose owners' Secrets are to be written or deleted, also those that sleep.
func (m *Manager) renewOwners() {
	for _, name := range m.applied.names() {
		if m.owners.Due(name, m.config.Specs.Access(name).Get()) {
			m.objects.Queue.Add(name)
		}
	}
}

// publishOwners writes and deletes the Secrets of a space's owners. A failure does not prevent serving: it is logged, and retried by
// renewOwners. Only reconcile calls it, so that it never runs while the space is being deleted.
func (m *Manager) publishOwners(ctx context.Context, object *v1alpha1.Space) {
	name := object.Name
	state := m.config.Specs.Access(name).Get()
	if m.applied.get(name) == nil || !m.owners.Due(name, state) {
		return
	}
	left, err := m.owners.Publish(ctx, name, state, m.env.Endpoint(name), m.servingCA())
	if err != nil && ctx.Err() == nil {
		m.logger.Error(err, "Could not publish the kubeconfigs of a space's owners; Berth retries", "space", name)
	}
	if left > 0 {
		m.recordEvent(ctx, object, corev1.EventTypeWarning, v1alpha1.ReasonOwnersLimited, fmt.Sprintf("%d.%d", object.Generation, left), fmt.Sprintf(
			"%d owners have no kubeconfig in a Secret, because only the first %d have; issue theirs with 'berth kubeconfig %s --owner NAME', or make a group the owner", left, kubeconfig.MaxOwners, name))
	}
}

// CheckOwner fails unless a space in a data directory has an owner, according to the spec that it runs with.
func CheckOwner(dataDir, space string, owner v1alpha1.Subject) error {
	runs, err := readApplied(datadir.Space(dataDir, space))
	if err != nil {
		return err
	}
	var names []string
	if runs != nil {
		for _, o := range runs.Spec.Access.Owners {
			if o.Kind == owner.Kind && o.Name == owner.Name {
				return nil
			}
			names = append(names, string(o.Kind)+" "+o.Name)
		}
	}
	if len(names) == 0 {
		return fielderror.New("owner", owner.Name, "space %s has no owners; add it to spec.access.owners of the Space, or to its Tenant", space)
	}
	return fielderror.New("owner", owner.Name, "no %s of that name is an owner of space %s; its owners are: %s", owner.Kind, space, strings.Join(names, ", "))
}

// renewHostTokens renews the host tokens of dedicated spaces' processes, the CA bundle of the API endpoint that they publish, and what they
// connect to database servers with.
func (m *Manager) renewHostTokens(ctx context.Context) {
	if m.pods != nil { // their podKeepers renew them
		return
	}
	for name := range m.processes.all() {
		dir := datadir.Dedicated(m.config.DataDir, name)
		if err := m.renewServer(ctx, name, dir); err != nil {
			m.logger.Error(err, "Could not read the Secret with the store of a dedicated space; its process keeps what it has", "space", name)
		}
		if !m.access.IsDue(name) {
			continue
		}
		if err := errors.Join(m.access.Renew(ctx, name, dir), m.writeServingCA(dir)); err != nil {
			m.logger.Error(err, "Could not renew the token of a dedicated space; Berth retries", "space", name)
		}
	}
}

// publishKubeconfig writes a space's kubeconfig to its Secret. A failure does not prevent serving: it is logged, and
// retried at the next renewal.
func (m *Manager) publishKubeconfig(ctx context.Context, space string, kubeconfig []byte) {
	if space == datadir.HostName {
		return
	}
	if err := m.secrets.Write(ctx, space, kubeconfig); err != nil && ctx.Err() == nil {
		m.logger.Error(err, "Could not write a kubeconfig Secret; Berth retries at the next renewal", "space", space)
	}
	if err := m.writeCluster(ctx, space, kubeconfig); err != nil && ctx.Err() == nil {
		m.logger.Error(err, "Could not write a cluster Secret of Argo CD; Berth retries at the next renewal", "space", space)
	}
}

func (m *Manager) writeCluster(ctx context.Context, space string, admins []byte) error {
	serverCA, err := kubeconfig.ServerCA(m.config.DataDir, m.env.CA)
	if err != nil {
		return err
	}
	return m.clusters.Write(ctx, m.config.DataDir, space, admins, serverCA)
}

// servingCA returns the PEM bundle by which spaces' own clients verify the API endpoint. Pods reach it by the platform's own CA,
// whatever the endpoint's certificate is for others.
func (m *Manager) servingCA() []byte {
	serverCA, err := kubeconfig.ServerCA(m.config.DataDir, m.env.CA)
	if err != nil {
		m.logger.Error(err, "Could not read the CA of the API endpoint; spaces publish Berth's own")
	}
	if len(serverCA) == 0 {
		return m.env.CA.PEM()
	}
	return serverCA
}
