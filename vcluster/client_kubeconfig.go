// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"path/filepath"

	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/vcluster/pki"
)

// ClientKubeconfig is [ControlPlane.ClientKubeconfig] of a control plane that
// need not run, or never did: of c, it reads Name, Dir, Endpoint and ServingCA.
func ClientKubeconfig(c Config, user string, groups []string) ([]byte, error) {
	ca, err := openCA(c.Dir, c.Name, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	pair, err := ca.Client(user, groups)
	if err != nil {
		return nil, err
	}
	return pki.Kubeconfig(c.Name, c.Endpoint, c.ServingCA, user, pair)
}

func openCA(dir, name string, clock clock.PassiveClock) (*pki.CA, error) {
	return pki.OpenCAWithClock(filepath.Join(dir, "pki"), pki.SpaceCA(name), clock)
}

// openFrontProxyCA opens the CA by which servers that extend the API know
// that it is the API server that calls them. Apart from the other, as who has a
// client certificate of that one must not pass for the API server. It is in no
// snapshot: what is restored makes another, and publishes it.
func openFrontProxyCA(dir, name string, clock clock.PassiveClock) (*pki.CA, error) {
	return pki.OpenCAWithClock(filepath.Join(dir, "front-proxy"), pki.SpaceCA(name)+"-front-proxy", clock)
}
