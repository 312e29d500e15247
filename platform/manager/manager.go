// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manager owns the life of each space of a platform: it has what runs, and what is on the host, be as the Space
// objects on the host say. [Manager] reconciles these objects one at a time for each space: it prepares and isolates a space
// on the host, issues its credentials, gives it a place in the shared process or a process of its own, wakes it, and deletes
// it. Each step may be repeated, so that a crash at any instruction is followed by the same steps in the next process.
package manager

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/metrics"
	"github.com/berth-dev/berth/platform/hostaccess"
	"github.com/berth-dev/berth/platform/kubeconfig"
	"github.com/berth-dev/berth/platform/repairs"
	"github.com/berth-dev/berth/platform/spaceobjects"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/vcluster/pki"
)

// startTimeout bounds the start of one space: one that cannot start must not
// keep the others waiting.
const startTimeout = 2 * time.Minute

// Environment is what the platform has for its spaces. All of it must be set, but for Traces.
type Environment struct {
	// Host is by what the host is reached, and HostAddress where the processes of dedicated spaces reach it, without what
	// authenticates there.
	Host        *rest.Config
	HostAddress func() (*clientcmdapi.Cluster, error)
	// CA is that of the port, and Endpoint the URL of a space's API there.
	CA       *pki.CA
	Endpoint func(space string) string
	// Commands is what the control socket serves; the manager adds its own.
	Commands *http.ServeMux
	Metrics  *metrics.Metrics
	Traces   tracing.TracerProvider
}

// Manager has the spaces of a platform be as their Space objects on the host say. Its methods may be called concurrently
// after [Manager.Open].
type Manager struct {
	config Options
	env    Environment
	logger klog.Logger

	secrets    *kubeconfig.Secrets
	clusters   *kubeconfig.Clusters // for Argo CD
	hostClient client.Client
	access     *hostaccess.Access // of dedicated spaces' processes
	pods       *dedicatedPods     // nil if those are processes of this machine
	closed     []netip.Prefix     // to spaces' pods
	shard      *shard.Shard
	prepare    func(ctx context.Context, space string) error // isolates a space on the host
	// isolationOptions are those of all spaces.
	isolationOptions []isolation.Option
	repairs          *repairs.Repairs
	processes        processes
	snapshots        *snapshots
	changes          changes
	deletions        deletions

	starts  firstStarts
	objects *spaceobjects.Objects
	applied appliedSpecs
	quotas  sync.Map // of the spaces, by name, of which a quota on the host has changed
	// unapplied are spaces of the configuration, by name, whose objects could not be applied yet: each a *v1alpha1.Space.
	unapplied sync.Map
	foreign   seenObjects

	undoOpen, undoStart undo
}

// undo are functions that undo what was done, in the order in which that was done.
type undo []func(context.Context)

func (u *undo) add(f func(context.Context)) { *u = append(*u, f) }

func (u *undo) run(ctx context.Context) {
	for _, f := range slices.Backward(*u) {
		f(ctx)
	}
	*u = nil
}

// New returns a manager with options that are complete.
func New(o Options, e Environment) *Manager {
	return &Manager{config: o, env: e, logger: o.Logger}
}

// Open gives all spaces that have an object their places, asleep, so that none is missed once requests are served. Call Close
// also if it fails.
func (m *Manager) Open(ctx context.Context) (err error) {
	if m.secrets, err = kubeconfig.OpenSecrets(m.env.Host, m.config.KubeconfigSecrets, m.config.PlatformName); err != nil {
		return err
	}
	if m.clusters, err = kubeconfig.OpenClusters(m.env.Host, m.config.ArgoCDNamespace, m.config.PlatformName); err != nil {
		return err
	}
	m.repairs = repairs.New(m.repairIsolation, m.repairsChanged, m.logger)
	if err := m.startShard(ctx); err != nil {
		return err
	}
	return m.openSpaces(ctx)
}

// Start begins to reconcile, to take snapshots, to renew credentials, and to start spaces, all in the background. Call Stop
// also if it fails.
func (m *Manager) Start(ctx context.Context) error {
	for _, start := range []func(context.Context) error{m.startSnapshots, m.startReconciling, m.watchIsolation, m.beginFirstStarts, m.startRenewing} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends what Start began. Spaces go on to serve until Close.
func (m *Manager) Stop(ctx context.Context) { m.undoStart.run(ctx) }

// Close stops all spaces.
func (m *Manager) Close(ctx context.Context) { m.undoOpen.run(ctx) }

// Started is closed when all spaces of the configuration have been tried.
func (m *Manager) Started() <-chan struct{} { return m.starts.done }

// StartError is why the platform is not to run on, once Started is closed; nil if it is.
func (m *Manager) StartError() error { return m.starts.err }

// Host shows the objects of spaces on the host.
func (m *Manager) Host() *syncer.Host { return m.shard.Host() }

// ServiceRange is the address range of the host's services.
func (m *Manager) ServiceRange() string { return m.shard.ServiceRange() }

// ClosedRanges are the address ranges of the host, and those that the configuration closes to all spaces.
func (m *Manager) ClosedRanges() []netip.Prefix {
	return slices.Concat(m.closed, m.config.Specs.ClosedRanges())
}

// Handler serves the API of a space; nil if there is no space of the name.
func (m *Manager) Handler(space string) http.Handler {
	if process := m.processes.get(space); process != nil {
		return process.Handler()
	}
	return m.shard.Handler(space)
}

// Verify is for [gateway.Router.Verify].
func (m *Manager) Verify(space string, r *http.Request) (*http.Request, bool, error) {
	return m.shard.Verify(space, r)
}
