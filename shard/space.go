// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"fmt"
	"net"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/rest"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster"
	berthadmission "github.com/berth-dev/berth/vcluster/admission"
	"github.com/berth-dev/berth/vcluster/pki"
)

// Space is a running space: a control plane and a syncer.
type Space struct {
	plane  *vcluster.ControlPlane
	end    context.CancelFunc // ends the syncer
	synced chan error         // what the syncer returned
}

// Kubeconfig for a user of the space with the given groups.
func (s *Space) Kubeconfig(user string, groups []string) ([]byte, error) {
	return s.plane.ClientKubeconfig(user, groups)
}

// Loopback reaches the space's API in process with all rights.
func (s *Space) Loopback() *rest.Config { return s.plane.Loopback() }

// Done is closed when the space's control plane has ended, by Stop or by itself.
func (s *Space) Done() <-chan struct{} { return s.plane.Done() }

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
	sync, err := syncer.New(syncer.Config{
		Space: space, Host: s.host, Virtual: plane.Loopback(), Informers: plane.Informers(), Logger: logger,
	})
	if err != nil {
		_ = plane.Stop(context.WithoutCancel(ctx))
		return nil, err
	}
	run, end := context.WithCancel(context.WithoutCancel(ctx))
	running := &Space{plane: plane, end: end, synced: make(chan error, 1)}
	go func() { running.synced <- sync.Run(run) }()
	return running, nil
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

// stop ends the syncer before the control plane that it reads.
func (s *Space) stop(ctx context.Context) error {
	s.end()
	var err error
	select {
	case err = <-s.synced:
	case <-ctx.Done():
		err = fmt.Errorf("stop syncer: %w", ctx.Err())
	}
	if stopErr := s.plane.Stop(ctx); err == nil {
		err = stopErr
	}
	return err
}
