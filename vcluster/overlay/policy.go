// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/vcluster/builtin"
	"github.com/berth-dev/berth/vcluster/crdpolicy"
	"github.com/berth-dev/berth/vcluster/informer"
)

// wanted returns the set that the platform gives the space, with the policy that the tenant has chosen (C4), and a channel that is
// closed when the platform gives another one.
func (s *Space) wanted(ctx context.Context) (set *definitions.Set, changed <-chan struct{}, err error) {
	set, changed = s.source.Watch()
	stored, err := s.store.Kubernetes.Get(bounds.WithReservation(ctx, nil), builtin.CRDPolicyKey, kubernetes.GetOptions{})
	if err != nil {
		return nil, changed, fmt.Errorf("read the CRDPolicy: %w", err)
	}
	if stored.KV != nil {
		set = set.WithPolicy(definitions.Policy(crdpolicy.Policy(stored.KV.Value)))
	}
	return set, changed, nil
}

// Wrote implements [informer.Observer].
func (s *Space) Wrote(w informer.Write) {
	if w.Key == builtin.CRDPolicyKey {
		s.Lost()
	}
}

// Lost implements [informer.Observer]: the policy may have changed.
func (s *Space) Lost() {
	select {
	case s.policy <- struct{}{}:
	default:
	}
}
