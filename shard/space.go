// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/sharing"
	"github.com/berth-dev/berth/streams"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster"
	berthadmission "github.com/berth-dev/berth/vcluster/admission"
	"github.com/berth-dev/berth/vcluster/pki"
	"github.com/berth-dev/berth/vcluster/podaccess"
)

// Space is a running space: a control plane and a syncer. If one of them ends by itself, the other is stopped.
type Space struct {
	plane      *vcluster.ControlPlane
	syncer     syncing
	namespaces *namespaces
	// account counts what the space uses of the process.
	account  *bounds.Account
	declared []*declaration.Declaration // with which it started

	requestStop  func()
	closeStreams func()
	stopping     chan struct{} // closed by requestStop
	done         chan struct{}
	// err and stopErr are set before done is closed.
	err     error // why the space ended by itself
	stopErr error // the error of its stop
}

// Kubeconfig returns a kubeconfig for a user of the space with these groups.
func (s *Space) Kubeconfig(user string, groups []string) ([]byte, error) {
	return s.plane.ClientKubeconfig(user, groups)
}

// Account returns what the space uses of the process that it shares with others.
func (s *Space) Account() *bounds.Account { return s.account }

// Declared returns the custom resources that are synced of the space since it started, which must not be changed.
func (s *Space) Declared() []*declaration.Declaration { return s.declared }

// Loopback returns a configuration for clients in this process, with all rights in the space.
func (s *Space) Loopback() *rest.Config { return s.plane.Loopback() }

// SaveFiles saves the files in the directory of the space in the database server with its store, if that is in one.
func (s *Space) SaveFiles(ctx context.Context) error { return s.plane.SaveFiles(ctx) }

// RetryWorkloads has the space's controllers create now what a quota refused.
func (s *Space) RetryWorkloads() { s.plane.RetryWorkloads() }

// Done returns a channel that is closed when the space has ended, by StopSpace or by itself.
func (s *Space) Done() <-chan struct{} { return s.done }

// Err returns why the space ended by itself, once Done is closed. It is nil before that, and after StopSpace.
func (s *Space) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// startSpace starts a space. If it is not prepared, or has to be again, startSpace first prepares it on the host. On error, nothing of the
// space runs.
func (s *Shard) startSpace(ctx context.Context, name string, prepared bool) (space *Space, err error) {
	err = safego.Call("start", func() error {
		server, err := s.server(ctx, name) // first, as it may replace the keys
		if err != nil {
			return err
		}
		if err := s.host.Own(ctx, name); err != nil {
			return err
		}
		if s.config.Prepare != nil && (!prepared || s.config.Unprepared(name)) {
			if err := s.config.Prepare(ctx, name); err != nil {
				return err
			}
		}
		space, err = s.open(ctx, name, server)
		return err
	})
	return space, err
}

// server returns the database server with the store of a space; nil if the store is a file.
func (s *Shard) server(ctx context.Context, name string) (*kine.Server, error) {
	if get := s.config.Settings(name).Server; get != nil {
		return get(ctx)
	}
	return nil, nil
}

func (s *Shard) open(ctx context.Context, name string, server *kine.Server) (opened *Space, err error) {
	key, err := pki.Secret(s.dir(name), "node.key")
	if err != nil {
		return nil, err
	}
	settings := s.config.Settings(name)
	space := translate.Space{Name: name, NodeKey: key, Pods: s.config.PodsAt(), Settings: settings.Objects, Closed: settings.Closed}
	address, err := s.host.ReserveAPI(ctx, space)
	if err != nil {
		return nil, err
	}
	if space.Pods.Valid() {
		nameserver, err := s.host.ReservePods(ctx, space)
		switch {
		case err == nil:
			space.Nameservers = []string{nameserver}
		case syncer.QuotaExceeded(err):
			// The start continues, because tenants need the API to delete services.
			s.config.Logger.Error(err, "Pods of the space use the host's DNS until its next start, as its quota on the host has no place for the DNS service", "space", name)
		default:
			return nil, err
		}
	}
	logger := s.config.Logger.WithValues("space", name)
	streams, err := streams.New(s.host.Host, space, logger)
	if err != nil {
		return nil, err
	}
	var usage podaccess.Usage
	if streams.HasUsage(ctx) {
		usage = streams
	}
	account := settings.Tenant.Open(settings.Limits)
	defer func() {
		if err != nil {
			account.Close()
		}
	}()
	plane, err := vcluster.Start(ctx, vcluster.Config{
		Name:                name,
		Dir:                 s.dir(name),
		Server:              server,
		Replica:             settings.Replica,
		Endpoint:            s.config.Endpoint(name),
		ServingCA:           s.config.ServingCA(),
		ServiceCIDR:         s.serviceRange,
		KubernetesServiceIP: net.ParseIP(address),

		KubernetesServiceServed: space.Pods.Valid(),
		Controllers:             controllers(&settings),
		HiddenNodes:             true,
		Access:                  settings.Access,
		Definitions:             settings.Definitions.WithSynced(s.host.SyncedDefinitions(s.syncOf(&settings))...),
		AfterRBAC:               s.config.Authorizer.For(name, func() string { return settings.Access.Get().Tenant }),
		Quota:                   s.config.Quota(name),
		TenantQuota:             s.config.TenantQuota(name),
		HostLimits:              settings.HostLimits,
		Admission:               s.admission(space, s.syncOf(&settings), settings.Placement, account),
		Pods:                    streams,
		Usage:                   usage,
		Logger:                  logger,
		Traces:                  s.config.Traces,
		Account:                 account,
		Volume:                  s.volume,
	})
	if err != nil {
		return nil, err
	}
	var shares sharing.Source
	if settings.Access != nil {
		shares = plane
	}
	var withdraw func(context.Context) error
	if s.config.Withdraw != nil {
		withdraw = s.withdrawOnce(name, settings.Declared)
	}
	syncing, err := syncer.New(syncer.Config{
		Account: account,
		Space:   space, Where: settings.Placement, Host: s.host, Sync: settings.Sync, Patches: settings.Patches, Tenant: func() string { return settings.Access.Get().Tenant }, Virtual: plane.Loopback(), Release: vcluster.KubernetesRelease, TokenKey: plane.TokenKeyID(), Informers: plane.Informers(), Shares: shares, Logger: logger,
		QuotaShort: func(requested corev1.ResourceList) { s.config.QuotaShort(name, requested) },
		Declared:   settings.Declared, Withdraw: withdraw, Hides: plane.Hides,
	})
	if err != nil {
		_ = plane.Stop(context.WithoutCancel(ctx))
		return nil, err
	}
	known, err := followNamespaces(plane.Informers(), func() { s.config.NamespacesChanged(name) })
	if err != nil {
		_ = plane.Stop(context.WithoutCancel(ctx))
		return nil, err
	}
	opened = newSpace(plane, syncing)
	opened.namespaces = known
	opened.closeStreams = streams.Close
	opened.account = account
	opened.declared = settings.Declared
	return opened, nil
}

// syncOf returns what is synced of a space with these settings.
func (s *Shard) syncOf(settings *Settings) resources.SyncOptions {
	return ptr.Deref(settings.Sync, s.config.Sync.Sync)
}

// controllers returns the controllers to run for a space with these settings.
func controllers(settings *Settings) []string {
	all := vcluster.SpaceControllers()
	if settings.Placement.ByName {
		all = append(all, names.DaemonSetController)
	}
	if settings.Objects.Claims {
		all = append(all, names.ResourceClaimController)
	}
	return all
}

// syncing is what Space needs of a syncer.
type syncing interface {
	Run(context.Context) error
	Idle() bool
	NextTimer() (at time.Time, ok bool)
	Stats() syncer.Stats
}

func newSpace(plane *vcluster.ControlPlane, syncer syncing) *Space {
	stopping := make(chan struct{})
	return &Space{
		plane:        plane,
		syncer:       syncer,
		requestStop:  sync.OnceFunc(func() { close(stopping) }),
		closeStreams: func() {},
		stopping:     stopping,
		done:         make(chan struct{}),
	}
}

// supervise runs the syncer until the space must stop or until the syncer or the control plane ends by itself. Then it
// stops both: first the syncer, which reads from the control plane.
func (s *Space) supervise() {
	defer close(s.done)
	run, end := context.WithCancel(context.Background())
	defer end()
	synced := make(chan error, 1)
	go func() { synced <- safego.Call("sync", func() error { return s.syncer.Run(run) }) }()
	select {
	case <-s.stopping:
		end()
		s.stopErr = <-synced
	case <-s.plane.Done():
		end()
		s.err = fmt.Errorf("its control plane has ended: %w", joined(s.plane.Err(), <-synced))
	case err := <-synced:
		s.err = fmt.Errorf("its syncer has ended: %w", joined(err))
	}
	// Streams are closed first, so that the control plane need not wait for them. Connections that its proxies keep
	// would even outlive it.
	safego.Run("close streams", s.closeStreams, nil)
	s.stopErr = errors.Join(s.stopErr, safego.Call("stop", func() error { return s.plane.Stop(context.Background()) }))
	s.account.Close()
}

// joined returns the non-nil errors, joined, or nil.
func joined(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return errors.New("without an error")
}

// rest returns an error if a space may not sleep now, and otherwise until when it may sleep: zero if without end. A
// space may not sleep while its syncer works, nor until nothing has been written for the duration quiet. What its
// controllers wait for is in its objects, and what expires is in its store.
func (s *Space) rest(ctx context.Context, quiet time.Duration) (until time.Time, err error) {
	err = safego.Call("ask", func() error {
		if s.plane.Quiet() < quiet {
			return errFresh
		}
		if !s.syncer.Idle() {
			return errBusy
		}
		timer, ok, err := s.plane.NextTimer(ctx)
		if err != nil {
			return err
		}
		if ok {
			until = timer
		}
		if timer, ok = s.syncer.NextTimer(); ok && (until.IsZero() || timer.Before(until)) {
			until = timer
		}
		if s.plane.Quiet() < quiet {
			return errFresh // its own components wrote during the check
		}
		return nil
	})
	return until, err
}

// followsNodes reports whether a space has work to do when its nodes change.
func (s *Space) followsNodes(ctx context.Context) (follows bool, err error) {
	err = safego.Call("ask", func() (err error) {
		follows, err = s.plane.HasDaemonSets(ctx)
		return err
	})
	return follows, err
}

func (s *Shard) admission(space translate.Space, sync resources.SyncOptions, where translate.Placement, account *bounds.Account) []vcluster.Admission {
	return []vcluster.Admission{
		{Name: "BerthServiceAddresses", New: func() (admission.Interface, error) {
			return berthadmission.NewAddresses(func(ctx context.Context, v *corev1.Service, current berthadmission.Current) (*corev1.Service, error) {
				if !sync.On(resources.Services) {
					return nil, nil
				}
				return s.host.ReserveService(ctx, space, v, current)
			}, account), nil
		}},
		{Name: "BerthIsolation", New: func() (admission.Interface, error) {
			return berthadmission.NewIsolation(sync.On(resources.VolumeSnapshots), sync.On(resources.ExportedVolumes), where, &space.Settings), nil
		}},
	}
}
