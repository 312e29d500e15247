// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/hostaccess"
	"github.com/berth-dev/berth/platform/hosttokens"
	"github.com/berth-dev/berth/platform/kubeconfig"
	"github.com/berth-dev/berth/platform/repairs"
	"github.com/berth-dev/berth/platform/spaceprocess"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/accessreview"
	"github.com/berth-dev/berth/vcluster/pki"
)

func (m *Manager) startShard(ctx context.Context) (err error) {
	config := rest.CopyConfig(m.env.Host)
	config.QPS = -1 // the host's own priority and fairness decides
	host, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("make host client: %w", err)
	}
	m.hostClient = host
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make client of the host's keys: %w", err)
	}
	m.hostTokens = hosttokens.New(host, api.RESTClient(), m.config.Specs.HasHostAccount, clock.RealClock{}, m.logger)
	m.access = hostaccess.New(host, m.env.HostAddress, clock.RealClock{})
	if err := m.openPods(ctx); err != nil {
		return err
	}
	specs := m.config.Specs
	m.closed = closedRanges(ctx, host, m.logger)
	options := []isolation.Option{
		isolation.BoundTo(m.config.SpaceRole), isolation.ExposedBy(specs.Sync().IngressAnnotations),
	}
	if m.config.SpaceRole == "" { // otherwise, the chart that installed the role installs the policies, too
		if err := isolation.InstallPolicies(ctx, host, specs.Sync().Sync); err != nil {
			return err
		}
	} else {
		review := &authenticationv1.SelfSubjectReview{}
		if err := host.Create(ctx, review); err != nil {
			return fmt.Errorf("ask the host who this platform is there: %w", err)
		}
		options = append(options, isolation.ImpersonatedBy(review.Status.UserInfo.Username))
	}
	m.isolationOptions = options
	var held sync.Once
	m.prepare = func(ctx context.Context, space string) error {
		if err := m.isolate(ctx, space); err != nil {
			return err
		}
		held.Do(func() { m.awaitHeld(ctx, space) })
		return m.writeKubeconfig(ctx, space)
	}
	sync := specs.Sync()
	sync.OwnOnly = m.config.Shard != ""
	own, err := m.ownAtStart()
	if err != nil {
		return err
	}
	if err := m.openShares(); err != nil {
		return err
	}
	sync.QuotaChanged, sync.QuotaEased, sync.VolumeChanged = m.quotaChanged, m.shares.Eased, m.volumeChanged
	asked, err := accessreview.Open(m.config.Authorizer)
	if err != nil {
		return err
	}
	m.shard, err = shard.Start(ctx, shard.Config{
		Authorizer: asked,
		Dir:        datadir.Spaces(m.config.DataDir), ActiveDir: filepath.Join(m.config.DataDir, "active"),
		Host: m.env.Host, Sync: sync, Own: own,
		Settings: m.settings,
		Endpoint: m.env.Endpoint, ServingCA: m.servingCA, Pods: m.config.Pods.Endpoint(),
		Quota: m.shares.Gate, QuotaShort: m.shares.Short, Withdraw: m.syncs.Withdraw, TenantQuota: m.tenantQuota,
		Prepare: m.prepare, Unprepared: m.unprepared, Changed: m.changed, NamespacesChanged: m.namespacesChanged,
		Memory: shard.ProcessMemory(),
		Idle:   specs.Idle, SpacesMax: m.config.SpacesMax, Woken: m.env.Metrics.Woken, Traces: m.env.Traces, Logger: m.logger,
	})
	if err != nil {
		return err
	}
	m.undoOpen.add(func(ctx context.Context) {
		if err := m.shard.Stop(ctx); err != nil {
			m.logger.Error(err, "Could not stop all spaces in order")
		}
	})
	spaceprocess.ServeSpaces(m.env.Commands, m)
	serveRotation(m.env.Commands, m.Rotate)
	return nil
}

// heldAfter is how long the first space waits for the host to take up the policies
// that hold its account: about a second on a host that has just got them.
const heldAfter = 5 * time.Second

// awaitHeld has the first space wait until the host holds spaces' accounts. One
// that never does is the platform's choice, and is told of.
func (m *Manager) awaitHeld(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, heldAfter)
	defer cancel()
	space := translate.Space{Name: name}
	account, err := client.New(syncer.AsAccount(m.env.Host, space), client.Options{Scheme: scheme.Scheme})
	if err == nil {
		err = isolation.WaitEnforced(ctx, account, space)
	}
	if err != nil {
		m.logger.Error(err, "Host does not enforce the admission policies for spaces; spaces start nevertheless, and their accounts have all rights of their role. See admissionPolicy in docs/reference/host-access.md")
	}
}

func (m *Manager) isolate(ctx context.Context, name string) error {
	if err := m.checkNotInPod(name); err != nil {
		return err
	}
	store, err := datadir.StoreID(m.config.DataDir, name)
	if err != nil {
		return err
	}
	isolated, err := m.applyIsolation(ctx, name, func() *isolation.Isolation { return m.isolationOf(name, store) })
	if err != nil {
		return err
	}
	if m.wasDedicated(name) {
		if err := m.removeProcess(ctx, name); err != nil {
			return err
		}
	}
	m.config.Progress("Space %s is isolated on the host: namespace %s with quota, limits, network policy, pod security", name, isolated.Space.HostNamespace())
	return nil
}

// checkNotInPod fails if a space without a process has its store in a pod, which isolate would delete with its volume.
func (m *Manager) checkNotInPod(name string) error {
	if m.processes.get(name) != nil {
		return nil
	}
	where, err := m.storeLocation(name)
	switch {
	case err != nil || where == nil:
		return err
	case m.pods == nil:
		return errNoPods
	default:
		return errInPod(name)
	}
}

// removeProcess removes what the process of a space had that has none now.
func (m *Manager) removeProcess(ctx context.Context, name string) error {
	if err := m.checkNotInPod(name); err != nil {
		return err
	}
	dir := datadir.Dedicated(m.config.DataDir, name)
	if _, err := os.Stat(filepath.Join(dir, spaceprocess.IncarnationFile)); m.pods == nil && err == nil {
		return nil // a platform that runs pods is to find that there may be one left
	}
	if m.pods != nil {
		if err := newIncarnation(dir); err != nil {
			return err
		}
	}
	left, err := m.removePod(ctx, name) // which has the store no more
	if err != nil {
		return err
	}
	if left != "" { // a new pod must not get the volume of this one
		return fmt.Errorf("space %s has left its pod, and waits until that is gone: %s", name, left)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("delete the files of space %s's process: %w", name, err)
	}
	return nil
}

// isolationOf is what isolates a space with a store.
func (m *Manager) isolationOf(name, store string) *isolation.Isolation {
	settings, own := m.config.Specs.Shard(name, m.closed), m.config.Specs.Of(name)
	options := append(slices.Clone(m.isolationOptions), isolation.Syncing(own.Sync()), isolation.PlacedBy(settings.Placement), isolation.LimitedBy(own.LimitRange), isolation.ScopedBy(own.ScopedQuotas),
		isolation.LabelledBy(own.Namespace.Labels, own.Namespace.Annotations))
	if tenant, _ := m.quotaOf(name); tenant != "" {
		options = append(options, isolation.QuotaPlacedBy(func(ctx context.Context) error { return m.shares.Place(ctx, name) }))
	}
	synced := m.syncs.Of(name)
	for _, d := range synced {
		if !d.FromHost {
			options = append(options, isolation.AlsoSyncing(isolation.SyncRule(d)))
		}
	}
	switch {
	case m.processes.get(name) != nil:
		options = append(options, isolation.Dedicated(own.Sync(), synced...))
	case m.wasDedicated(name):
		options = append(options, isolation.Undedicated(own.Sync()))
	}
	return &isolation.Isolation{
		Space: translate.Space{Name: name, Store: store, Platform: m.config.PlatformName, Pods: m.config.Pods.Endpoint(), Settings: settings.Objects, Closed: settings.Closed},
		Quota: own.Quota, Options: options,
	}
}

// wasDedicated reports whether a space had a process of its own, and has none now, so that what that process had is to
// be removed.
func (m *Manager) wasDedicated(name string) bool {
	if m.processes.get(name) != nil {
		return false
	}
	_, err := os.Stat(datadir.Dedicated(m.config.DataDir, name))
	return err == nil
}

// writeKubeconfig sees to it that a space's kubeconfig is there, is good and
// leads here. The space need not run.
func (m *Manager) writeKubeconfig(ctx context.Context, name string) error {
	m.owners.Forget(name) // its keys may be others
	if pki.Exists(kubeconfig.ClientKeys(m.config.DataDir, name)) {
		if config, err := kubeconfig.Renew(m.config.DataDir, name, m.env.Endpoint(name), m.env.CA); err == nil {
			m.publishKubeconfig(ctx, name, config)
			return nil
		}
	}
	serverCA, err := kubeconfig.ServerCA(m.config.DataDir, m.env.CA)
	if err != nil {
		return fmt.Errorf("make kubeconfig of space %s: %w", name, err)
	}
	config, err := vcluster.ClientKubeconfig(vcluster.Config{
		Name: name, Dir: datadir.Space(m.config.DataDir, name), Endpoint: m.env.Endpoint(name), ServingCA: serverCA,
	}, kubeconfig.AdminUser, []string{kubeconfig.AdminGroup})
	if err != nil {
		return fmt.Errorf("make kubeconfig of space %s: %w", name, err)
	}
	if err := pki.WriteFile(datadir.Kubeconfig(m.config.DataDir, name), config); err != nil {
		return fmt.Errorf("write kubeconfig of space %s: %w", name, err)
	}
	m.publishKubeconfig(ctx, name, config)
	return nil
}

// closedRanges are those of the host.
func closedRanges(ctx context.Context, host client.Client, logger klog.Logger) []netip.Prefix {
	found, err := isolation.HostRanges(ctx, host)
	if err != nil {
		logger.Error(err, "Could not find all public addresses of the host, which must be closed to spaces. List them in spaceDefaults.network.closedRanges")
	}
	return found
}

// watchIsolation restores the objects that isolate spaces when somebody changes them, until the platform stops. It
// covers spaces that sleep, too.
func (m *Manager) watchIsolation(context.Context) error {
	config := rest.CopyConfig(m.env.Host)
	config.QPS = -1 // the host's API priority and fairness limits the requests
	host, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme, Mapper: m.hostClient.RESTMapper()})
	if err != nil {
		return fmt.Errorf("make host client: %w", err)
	}
	options := m.config.Specs.Sync().Sync
	watch := &isolation.Watch{
		Host: host, Of: m.isolated, Spaces: m.applied.names, Changed: m.repairs.Note,
		Logger: m.logger,
	}
	if m.config.SpaceRole == "" {
		watch.Policies = isolation.Policies(options)
	}
	life, end := context.WithCancel(context.Background())
	var group sync.WaitGroup
	safego.Go(&group, "watch isolation", func() { watch.Run(life) }, nil)
	safego.Go(&group, "repair isolation", func() { m.repairs.Run(life) }, nil)
	m.undoStart.add(func(context.Context) { end(); group.Wait() })
	return nil
}

// isolated returns the isolation of a space. It is nil if the space has no place on this platform or is being deleted,
// so that nothing is restored that a deletion has removed. After a crash, this process may not have resumed the
// deletion yet, and the space may no longer have a directory.
func (m *Manager) isolated(name string) *isolation.Isolation {
	if m.applied.get(name) == nil || m.deletions.has(name) {
		return nil
	}
	object := m.objects.Get(name)
	if object == nil { // the watch on spaces is behind
		store, err := datadir.StoreIDIn(datadir.Space(m.config.DataDir, name))
		if err != nil {
			return nil
		}
		return m.isolationOf(name, store)
	}
	store := object.Annotations[translate.AnnotationStore]
	if store == "" || !object.DeletionTimestamp.IsZero() {
		return nil
	}
	return m.isolationOf(name, store)
}

// repairIsolation restores the isolation of a space, for [repairs].
func (m *Manager) repairIsolation(ctx context.Context, name string) error {
	if name == "" {
		return isolation.InstallPolicies(ctx, m.hostClient, m.config.Specs.Sync().Sync)
	}
	end, err := m.changes.Begin(name, "being isolated again")
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	isolated := m.isolated(name)
	if isolated == nil {
		return repairs.ErrNotIsolated
	}
	// The space may have been deleted while the watch is behind. Then the namespace may belong to somebody else.
	object := &v1alpha1.Space{}
	err = m.objects.Client.Get(ctx, client.ObjectKey{Name: name}, object)
	if apierrors.IsNotFound(err) || err == nil && object.Annotations[translate.AnnotationStore] != isolated.Space.Store {
		return repairs.ErrNotIsolated
	}
	if err != nil {
		return fmt.Errorf("read Space object %s: %w", name, err)
	}
	if _, err := m.applyIsolation(ctx, name, func() *isolation.Isolation { return m.isolationOf(name, isolated.Space.Store) }); err != nil {
		return err
	}
	if m.processes.get(name) != nil {
		m.access.Expire(name) // a token is valid only for the account that it was issued for, not for one created again with the same name
	}
	return nil
}

// repairsChanged implements the callback of [repairs]. The name is empty for the policies, which belong to no space.
func (m *Manager) repairsChanged(space string) {
	if space != "" {
		m.changed(space)
	}
}

// names returns the names of all spaces that have a place.
func (s *appliedSpecs) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.of))
}
