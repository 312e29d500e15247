// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/vcluster/credentials"
	"github.com/berth-dev/berth/vcluster/pki"
)

// ClientKubeconfig is [ControlPlane.ClientKubeconfig] for a control plane that does not run, and may never have run. It
// reads Name, Dir, Endpoint, and ServingCA of c.
func ClientKubeconfig(c Config, user string, groups []string) ([]byte, error) {
	ca, err := credentials.OpenCA(c.Dir, c.Name, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	pair, err := ca.Client(user, groups)
	if err != nil {
		return nil, err
	}
	return pki.Kubeconfig(c.Name, c.Endpoint, c.ServingCA, user, pair)
}

// OwnerKubeconfig returns a kubeconfig for an owner of the space's tenant, whose client certificate is good for life, and only as long
// as the owner is one in the state of Config.Access. user and groups are who the bearer is in the space. The control plane need not run.
// It reads Name, Dir, Endpoint, and ServingCA of c.
func OwnerKubeconfig(c Config, owner pki.Owner, life time.Duration, user string, groups []string) ([]byte, error) {
	ca, err := credentials.OpenCA(c.Dir, c.Name, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	pair, err := ca.ClientForOwner(life, owner, user, groups)
	if err != nil {
		return nil, err
	}
	return pki.Kubeconfig(c.Name, c.Endpoint, c.ServingCA, user, pair)
}
