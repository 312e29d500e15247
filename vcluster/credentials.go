// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"fmt"
	"path/filepath"

	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/vcluster/pki"
)

// credentials are what a control plane proves itself, and knows others, by.
type credentials struct {
	ca                *pki.CA
	frontProxy        *pki.CA // of what it calls the servers of aggregated APIs with
	serviceAccountKey string  // path of the one that signs
	tokenKeys         *tokenKeys
	servingCA         string // path
}

// openCredentials opens those of a space in its directory, and makes what is missing. servingCA is a PEM bundle.
func openCredentials(dir, name string, servingCA []byte, clock clock.PassiveClock) (credentials, error) {
	ca, err := openCA(dir, name, clock)
	if err != nil {
		return credentials{}, err
	}
	frontProxy, err := openFrontProxyCA(dir, name, clock)
	if err != nil {
		return credentials{}, err
	}
	keys := filepath.Join(dir, "pki")
	key, err := pki.ServiceAccountKey(keys)
	if err != nil {
		return credentials{}, err
	}
	tokenKeys, err := openTokenKeys(keys, clock)
	if err != nil {
		return credentials{}, err
	}
	// Upstream's controllers read it from a file only.
	serving := filepath.Join(keys, "serving-ca.crt")
	if err := pki.WriteFile(serving, servingCA); err != nil {
		return credentials{}, fmt.Errorf("write serving CA: %w", err)
	}
	return credentials{ca: ca, frontProxy: frontProxy, serviceAccountKey: key, tokenKeys: tokenKeys, servingCA: serving}, nil
}

// openCA opens the CA of a space's clients.
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
