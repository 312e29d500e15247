// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"fmt"
	"path/filepath"

	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/vcluster/pki"
)

// Set are what a control plane proves itself, and knows others, by.
type Set struct {
	CA                *pki.CA
	FrontProxy        *pki.CA // of what it calls the servers of aggregated APIs with
	ServiceAccountKey string  // path of the one that signs
	TokenKeys         *tokenKeys
	ServingCA         string // path
}

// ServingCAFile is in the directory of a space's keys, and is none of them: each start writes it anew.
const ServingCAFile = "serving-ca.crt"

// Open opens those of a space in its directory, and makes what is missing. servingCA is a PEM bundle.
func Open(dir, name string, servingCA []byte, clock clock.PassiveClock) (Set, error) {
	ca, err := OpenCA(dir, name, clock)
	if err != nil {
		return Set{}, err
	}
	frontProxy, err := openFrontProxyCA(dir, name, clock)
	if err != nil {
		return Set{}, err
	}
	keys := filepath.Join(dir, "pki")
	key, err := pki.ServiceAccountKey(keys)
	if err != nil {
		return Set{}, err
	}
	tokenKeys, err := openTokenKeys(keys, clock)
	if err != nil {
		return Set{}, err
	}
	// Upstream's controllers read it from a file only.
	serving := filepath.Join(keys, ServingCAFile)
	if err := pki.WriteFile(serving, servingCA); err != nil {
		return Set{}, fmt.Errorf("write serving CA: %w", err)
	}
	return Set{CA: ca, FrontProxy: frontProxy, ServiceAccountKey: key, TokenKeys: tokenKeys, ServingCA: serving}, nil
}

// OpenCA opens the CA of a space's clients.
func OpenCA(dir, name string, clock clock.PassiveClock) (*pki.CA, error) {
	return pki.OpenCAWithClock(filepath.Join(dir, "pki"), pki.SpaceCA(name), clock)
}

// openFrontProxyCA opens the CA by which servers that extend the API know
// that it is the API server that calls them. Apart from the other, as who has a
// client certificate of that one must not pass for the API server. It is in no
// snapshot: what is restored makes another, and publishes it.
func openFrontProxyCA(dir, name string, clock clock.PassiveClock) (*pki.CA, error) {
	return pki.OpenCAWithClock(filepath.Join(dir, "front-proxy"), pki.SpaceCA(name)+"-front-proxy", clock)
}
