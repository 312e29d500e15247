// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manager owns the life cycle of all spaces of a platform. A [Manager] makes what runs, and what is on the
// host, match the Space objects on the host. It reconciles them, one operation at a time for each space: it prepares
// and isolates a space on the host, issues its credentials, gives it a place in the shared process or a process of its
// own, wakes it, and deletes it. Each step may be repeated, so that after a crash, the next process continues with the
// same steps.
package manager

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/platform/operations"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/metrics"
	"github.com/berth-dev/berth/platform/crdshares"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/hostaccess"
	"github.com/berth-dev/berth/platform/hosttokens"
	"github.com/berth-dev/berth/platform/kubeconfig"
	"github.com/berth-dev/berth/platform/move"
	"github.com/berth-dev/berth/platform/peers"
	"github.com/berth-dev/berth/platform/publications"
	"github.com/berth-dev/berth/platform/repairs"
	"github.com/berth-dev/berth/platform/resourcesyncs"
	"github.com/berth-dev/berth/platform/spaceobjects"
	"github.com/berth-dev/berth/platform/spacequota"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/replicator"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/vcluster/pki"
)

// startTimeout limits the start of one space, so that a space that cannot start does not block the others.
const startTimeout = 2 * time.Minute

// Environment is what the platform provides for its spaces. All fields except Traces are required.
type Environment struct {
	// Host is the configuration of clients of the host. HostAddress is the host's address for the processes of
	// dedicated spaces, without credentials.
	Host        *rest.Config
	HostAddress func() (*clientcmdapi.Cluster, error)
	// CA is the platform's own CA of the API endpoint. Endpoint returns the URL of a space's API. KeepServerCA updates what
	// kubeconfig.ServerCA returns, if the endpoint's certificate comes from files.
	CA           *pki.CA
	Endpoint     func(space string) string
	KeepServerCA func() error
	// Peers are the other shards; nil on a platform without shards.
	Peers *peers.Peers
	// Commands are the routes of the control socket. The manager adds its own.
	Commands *http.ServeMux
	Metrics  *metrics.Metrics
	Traces   tracing.TracerProvider
}

// Manager makes the spaces of a platform match their Space objects on the host. After [Manager.Open], it is safe for
// concurrent use.
type Manager struct {
	config Options
	env    Environment
	logger klog.Logger

	secrets    *kubeconfig.Secrets
	clusters   *kubeconfig.Clusters // for Argo CD
	owners     *kubeconfig.Owners
	hostClient client.Client
	hostTokens *hosttokens.Verifier
	access     *hostaccess.Access // tokens of dedicated spaces' processes
	pods       *dedicatedPods     // nil if these are processes of this machine
	volume     *kine.Volume       // the file system of the data directory
	closed     []netip.Prefix     // ranges that are closed to spaces' pods
	shard      *shard.Shard
	prepare    func(ctx context.Context, space string) error // isolates a space on the host
	// isolationOptions are the same for all spaces.
	isolationOptions []isolation.Option
	repairs          *repairs.Repairs
	processes        processes
	snapshots        *snapshots
	buckets          map[string]*snapshot.Bucket // by URL, those that spaces may name
	replicator       *replicator.Replicator      // nil if there are none
	changes          operations.Changes
	deletions        deletions
	transfers        operations.Transfers // of stores out of pods
	failedMoves      operations.FailedMoves
	// traffic are the requests to the spaces of this shard, received is what other shards send, and moved says which shard, a string, a space
	// has moved to that the watch doesn't show there yet.
	traffic  peers.Traffic
	received *move.Receiver
	moved    sync.Map
	moving   sync.Map // the names of spaces that are being moved to other shards, until all of that is done
	arrivals peers.Arrivals
	restores operations.Transfers // into pods, which pods that don't hand out their stores must not hold up
	// withinShare has since when spaces have been within their share, each a time.Time, by name.
	withinShare sync.Map
	started     time.Time

	starts       firstStarts
	publications *publications.Publications
	crdShares    *crdshares.Shares
	syncs        *resourcesyncs.Syncs
	syncChanges  *resourcesyncs.Changes
	// accountRights are those for syncs.
	accountRights accountRights
	objects       *spaceobjects.Objects
	applied       appliedSpecs
	places        sync.Mutex // held while a space that has outgrown its share gets its place
	owning        sync.Mutex // held while a space becomes this process's, or leaves it
	quotas        quotaUses
	shares        *spacequota.Quotas
	refusals      refusals
	sends         safego.Latest  // of what dedicated spaces enforce
	syncSends     safego.Latest  // of what is shared with them, and synced of them
	examining     sync.WaitGroup // of stores that have come from other shards
	// sending ends when the platform stops. It is set when it opens.
	sending context.Context //nolint:containedctx // of syncSends
	// unapplied are the spaces of the configuration, by name, whose objects could not be written yet. The values are
	// *v1alpha1.Space.
	unapplied sync.Map
	foreign   seenObjects
	unlabeled atomic.Bool // Berth may not label volumes

	undoOpen, undoStart undo
}

// undo are functions that undo steps, in the order of the steps.
type undo []func(context.Context)

func (u *undo) add(f func(context.Context)) { *u = append(*u, f) }

func (u *undo) run(ctx context.Context) {
	for _, f := range slices.Backward(*u) {
		f(ctx)
	}
	*u = nil
}

// New returns a manager. The options must be complete.
func New(o Options, e Environment) *Manager {
	m := &Manager{
		config: o, env: e, logger: o.Logger, volume: kine.NewVolume(o.DataDir), started: time.Now(), crdShares: crdshares.New(o.Logger),
	}
	m.syncs = m.newSyncs()
	return m
}

// Open gives all spaces with an object their places, asleep, so that no space is missing when requests are served.
// Close must be called even if Open fails.
func (m *Manager) Open(ctx context.Context) (err error) {
	if m.secrets, err = kubeconfig.OpenSecrets(m.env.Host, m.config.KubeconfigSecrets, m.config.PlatformName); err != nil {
		return err
	}
	if m.clusters, err = kubeconfig.OpenClusters(m.env.Host, m.config.ArgoCDNamespace, m.config.PlatformName); err != nil {
		return err
	}
	if m.owners, err = kubeconfig.OpenOwners(m.env.Host, m.config.KubeconfigSecrets, m.config.PlatformName, m.config.DataDir, clock.RealClock{}); err != nil {
		return err
	}
	m.repairs = repairs.New(m.repairIsolation, m.repairsChanged, m.logger)
	if err := m.openBuckets(); err != nil {
		return err
	}
	defer m.warmUp(ctx)()
	if err := m.openObjects(ctx); err != nil {
		return err
	}
	if err := m.startShard(ctx); err != nil {
		return err
	}
	m.serveMoves()
	return m.openSpaces(ctx)
}

// warmUp has a shard warm up meanwhile, because spaces that move to it hold their requests until it has started them. Other processes start
// their first spaces now, anyway. It returns a function that waits for that.
func (m *Manager) warmUp(ctx context.Context) (wait func()) {
	if m.config.Shard == "" {
		return func() {}
	}
	var warming sync.WaitGroup
	failed := func(err error) {
		m.logger.Error(err, "Could not warm up; the first space that starts here will take longer")
	}
	safego.Go(&warming, "warm up", func() {
		if err := shard.WarmUp(ctx, datadir.Scratch(m.config.DataDir), m.env.CA.PEM(), m.logger.V(4)); err != nil {
			failed(err)
		}
	}, failed)
	return warming.Wait
}

// Start starts to reconcile, to take snapshots, to renew credentials, and to start spaces, all in the background. Stop
// must be called even if Start fails.
func (m *Manager) Start(ctx context.Context) error {
	for _, start := range []func(context.Context) error{m.startSnapshots, m.startReconciling, m.startSyncChanges, m.watchIsolation, m.giveShares, m.beginFirstStarts, m.startRenewing} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends what Start has started. Spaces continue to serve until Close.
func (m *Manager) Stop(ctx context.Context) { m.undoStart.run(ctx) }

// Close stops all spaces.
func (m *Manager) Close(ctx context.Context) { m.undoOpen.run(ctx) }

// Started returns a channel that is closed when all spaces of the configuration have been tried.
func (m *Manager) Started() <-chan struct{} { return m.starts.done }

// StartError returns, once Started is closed, why the platform must end; nil if it need not.
func (m *Manager) StartError() error { return m.starts.err }

// Host returns the shared view of the host.
func (m *Manager) Host() *syncer.Host { return m.shard.Host() }

// ServiceRange returns the address range of the host's services.
func (m *Manager) ServiceRange() string { return m.shard.ServiceRange() }

// ClosedRanges returns the address ranges of the host, and those that the configuration closes to all spaces.
func (m *Manager) ClosedRanges() []netip.Prefix {
	return slices.Concat(m.closed, m.config.Specs.ClosedRanges())
}

// Client returns a client of the host for the objects of Berth's API that the platform reads.
func (m *Manager) Client() client.WithWatch { return m.objects.Client }

// Handler returns the handler of a space's API; nil if there is no such space.
func (m *Manager) Handler(space string) http.Handler {
	if process := m.processes.get(space); process != nil {
		return process.Handler()
	}
	return m.shard.Handler(space)
}

// GivesAccess implements [gateway.Router.GivesAccess].
func (m *Manager) GivesAccess(ctx context.Context, space string, visitor *identity.Identity) bool {
	if process := m.processes.get(space); process != nil {
		return m.config.Specs.Access(space).Accepts(visitor, time.Now()) || process.GivesAccess(ctx, visitor)
	}
	return m.shard.GivesAccess(ctx, space, visitor)
}

// VerifyOwn implements [gateway.Router.Verify] for credentials of the space alone.
func (m *Manager) VerifyOwn(space string, r *http.Request) (*http.Request, bool, error) {
	return m.shard.Verify(space, r)
}

// Verify implements [gateway.Router.Verify].
func (m *Manager) Verify(space string, r *http.Request) (*http.Request, bool, error) {
	if hosttokens.IsFor(r) {
		return m.hostTokens.Verify(space, r)
	}
	return m.shard.Verify(space, r)
}

// startPublications reads and watches the objects that are published to spaces. It waits for them, so that no space serves a
// request before it has what its publications say.
func (m *Manager) startPublications(ctx context.Context) (err error) {
	if m.publications, err = publications.New(m.config.Specs.PublicationsChanged, m.logger); err != nil {
		return err
	}
	stop := m.publications.Run(ctx, m.objects.Client)
	m.undoOpen.add(func(context.Context) { stop() })
	m.config.Specs.SetPublications(m.publications)
	return nil
}

// shareDefinitions reads and watches the definitions that are shared with spaces. It waits for them, as startPublications does.
func (m *Manager) shareDefinitions(ctx context.Context) {
	stop := m.crdShares.Run(ctx, m.objects.Client, func(ctx context.Context) {
		m.syncs.Note()
		m.SendAccess(ctx)
	})
	m.undoOpen.add(func(context.Context) { stop() })
}

// noteObject notes what an object says of its space, for what the platform gives it.
func (m *Manager) noteObject(object *v1alpha1.Space) {
	m.publications.Observe(object)
	m.crdShares.Observe(object)
	m.syncs.Observe(object) // which asks the shares
}

// settings are what a space in the shard has.
func (m *Manager) settings(space string) shard.Settings {
	settings := m.config.Specs.Shard(space, m.closed)
	settings.Definitions = m.crdShares.Source(space)
	settings.Declared = m.declared(space)
	if m.replicator != nil {
		settings.Replica = m.replicator.Of(space)
	}
	settings.Server = func(ctx context.Context) (*kine.Server, error) { return m.serverToOpen(ctx, space) }
	return settings
}
