// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/vcluster/credentials"
	"github.com/berth-dev/berth/vcluster/pki"
)

// ClientKubeconfig is [ControlPlane.ClientKubeconfig] of a control plane that
// need not run, or never did: of c, it reads Name, Dir, Endpoint and ServingCA.
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
