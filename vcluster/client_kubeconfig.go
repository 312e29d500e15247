// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
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
