// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"net"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster"
	berthadmission "github.com/berth-dev/berth/vcluster/admission"
	"github.com/berth-dev/berth/vcluster/pki"
)

// Space is a running space: a control plane and a syncer. When one of them ends
// by itself, so does the other.
type Space struct {
	plane *vcluster.ControlPlane

	requestStop func()
	stopping    chan struct{} // closed by requestStop
	done        chan struct{}
	// Set before done is closed.
	err     error // why the space has ended by itself
	stopErr error // what went wrong in stopping it
}

// Kubeconfig for a user of the space with the given groups.
func (s *Space) Kubeconfig(user string, groups []string) ([]byte, error) {
	return s.plane.ClientKubeconfig(user, groups)
}

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

func (s *Shard) startSpace(ctx context.Context, name string) (*Space, error) {
	key, err := pki.Secret(s.dir(name), "node.key")
	if err != nil {
		return nil, err
	}
	space := translate.Space{Name: name, NodeKey: key}
	address, err := s.host.ReserveAPI(ctx, space)
	if err != nil {
		return nil, err
	}
	logger := s.config.Logger.WithValues("space", name)
	plane, err := vcluster.Start(ctx, vcluster.Config{
		Name:                name,
		Dir:                 s.dir(name),
		Endpoint:            s.config.Endpoint(name),
		ServingCA:           s.config.ServingCA,
		ServiceCIDR:         s.serviceRange,
		KubernetesServiceIP: net.ParseIP(address),
		Controllers:         vcluster.SpaceControllers(),
		HiddenNodes:         true,
		Admission:           s.admission(space),
		Logger:              logger,
	})
	if err != nil {
		return nil, err
	}
	syncing, err := syncer.New(syncer.Config{
		Space: space, Host: s.host, Virtual: plane.Loopback(), Informers: plane.Informers(), Logger: logger,
	})
	if err != nil {
		_ = plane.Stop(context.WithoutCancel(ctx))
		return nil, err
	}
	running := newSpace(plane)
	go running.supervise(syncing.Run)
	return running, nil
}

func newSpace(plane *vcluster.ControlPlane) *Space {
	stopping := make(chan struct{})
	return &Space{
		plane:       plane,
		requestStop: sync.OnceFunc(func() { close(stopping) }),
		stopping:    stopping,
		done:        make(chan struct{}),
	}
}

// supervise runs the syncer until the space is to stop or one half of it ends,
// and stops both: the syncer before the control plane that it reads.
func (s *Space) supervise(syncSpace func(context.Context) error) {
	defer close(s.done)
	run, end := context.WithCancel(context.Background())
	defer end()
	synced := make(chan error, 1)
	go func() { synced <- syncSpace(run) }()
	select {
	case <-s.stopping:
		end()
		s.stopErr = <-synced
	case <-s.plane.Done():
		end()
		s.err = errors.Join(errors.New("the space's control plane has ended"), s.plane.Err(), <-synced)
	case err := <-synced:
		s.err = errors.Join(errors.New("the space's syncer has ended"), err)
	}
	s.stopErr = errors.Join(s.stopErr, s.plane.Stop(context.Background()))
}

func (s *Shard) admission(space translate.Space) []vcluster.Admission {
	return []vcluster.Admission{
		{Name: "BerthServiceAddresses", New: func() (admission.Interface, error) {
			return berthadmission.NewAddresses(func(ctx context.Context, v *corev1.Service) (*corev1.Service, error) {
				return s.host.ReserveService(ctx, space, v)
			}), nil
		}},
		{Name: "BerthGuard", New: func() (admission.Interface, error) { return berthadmission.NewGuard(), nil }},
	}
}
