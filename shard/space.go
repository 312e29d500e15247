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
	"github.com/berth-dev/berth/streams"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster"
	berthadmission "github.com/berth-dev/berth/vcluster/admission"
	"github.com/berth-dev/berth/vcluster/pki"
	"github.com/berth-dev/berth/vcluster/podaccess"
)

// Space is a running space: a control plane and a syncer. When one of them ends
// by itself, so does the other.
type Space struct {
	plane  *vcluster.ControlPlane
	syncer syncing
	// account is what the space takes of the process.
	account *bounds.Account

	requestStop  func()
	closeStreams func()
	stopping     chan struct{} // closed by requestStop
	done         chan struct{}
	// Set before done is closed.
	err     error // why the space has ended by itself
	stopErr error // what went wrong in stopping it
}

// Kubeconfig for a user of the space with the given groups.
func (s *Space) Kubeconfig(user string, groups []string) ([]byte, error) {
	return s.plane.ClientKubeconfig(user, groups)
}

// Account is what the space takes of what it shares with others.
func (s *Space) Account() *bounds.Account { return s.account }

// Loopback reaches the space's API in process with all rights.
func (s *Space) Loopback() *rest.Config { return s.plane.Loopback() }

// Done is closed when the space has ended, by StopSpace or by itself.
func (s *Space) Done() <-chan struct{} { return s.done }

// Err tells, once Done is closed, why the space ended by itself. It is nil after
// StopSpace, and until then.
func (s *Space) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// startSpace starts a space that is isolated on the host, or isolates it first if
// it is not prepared. On error nothing of it runs.
func (s *Shard) startSpace(ctx context.Context, name string, prepared bool) (space *Space, err error) {
	err = safego.Call("start", func() error {
		if !prepared && s.config.Prepare != nil {
			if err := s.config.Prepare(ctx, name); err != nil {
				return err
			}
		}
		space, err = s.open(ctx, name)
		return err
	})
	return space, err
}

func (s *Shard) open(ctx context.Context, name string) (*Space, error) {
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
			// Its tenant can delete services by the API, which must not wait for it.
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
	account := bounds.NewAccount(settings.Limits)
	plane, err := vcluster.Start(ctx, vcluster.Config{
		Name:                name,
		Dir:                 s.dir(name),
		Endpoint:            s.config.Endpoint(name),
		ServingCA:           s.config.ServingCA(),
		ServiceCIDR:         s.serviceRange,
		KubernetesServiceIP: net.ParseIP(address),

		KubernetesServiceServed: space.Pods.Valid(),
		Controllers:             controllers(settings.Placement),
		HiddenNodes:             true,
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
	syncing, err := syncer.New(syncer.Config{
		Account: account,
		Space:   space, Where: settings.Placement, Host: s.host, Sync: settings.Sync, Virtual: plane.Loopback(), Release: vcluster.KubernetesRelease, TokenKey: plane.TokenKeyID(), Informers: plane.Informers(), Logger: logger,
	})
	if err != nil {
		_ = plane.Stop(context.WithoutCancel(ctx))
		return nil, err
	}
	opened := newSpace(plane, syncing)
	opened.closeStreams = streams.Close
	opened.account = account
	return opened, nil
}

// syncOf says what is synced of a space with these settings.
func (s *Shard) syncOf(settings *Settings) resources.SyncOptions {
	return ptr.Deref(settings.Sync, s.config.Sync.Sync)
}

// controllers are those of a space whose pods run where it says.
func controllers(where translate.Placement) []string {
	all := vcluster.SpaceControllers()
	if where.ByName {
		all = append(all, names.DaemonSetController)
	}
	return all
}

// syncing is a syncer, as far as a space has to do with it.
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

// supervise runs the syncer until the space is to stop or one half of it ends,
// and stops both: the syncer before the control plane that it reads.
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
	// First, so that the control plane need not wait for them; connections that
	// its proxies keep would even outlive it.
	safego.Run("close streams", s.closeStreams, nil)
	s.stopErr = errors.Join(s.stopErr, safego.Call("stop", func() error { return s.plane.Stop(context.Background()) }))
}

// joined joins errors, of which there may be none.
func joined(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return errors.New("without an error")
}

// rest asks a space whether it may sleep, and until when: zero if for ever. It
// may not while its syncer has work under way, nor until nothing has been written
// for as long as quiet. What its controllers wait for is in its objects; what
// expires, in its store.
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
			return errFresh // by what it does itself, while it was asked
		}
		return nil
	})
	return until, err
}

// followsNodes reports whether a space has something to do when its nodes change.
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
			return berthadmission.NewIsolation(sync.On(resources.VolumeSnapshots), where, space.Settings.PodSecurity), nil
		}},
	}
}
