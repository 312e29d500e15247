// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"crypto/tls"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/vcluster/pki"
)

// ClientCertificate is the platform's certificate for connections to the pods of dedicated spaces. It is renewed after
// half of its lifetime, and not for each connection, which would cost a key and a signature. It is safe for concurrent
// use.
type ClientCertificate struct {
	ca    *pki.CA
	clock clock.PassiveClock

	mu   sync.Mutex
	last tls.Certificate
	due  time.Time
}

// NewClientCertificate returns the certificate, which the CA issues when it is first needed.
func NewClientCertificate(ca *pki.CA, clock clock.PassiveClock) *ClientCertificate {
	return &ClientCertificate{ca: ca, clock: clock}
}

// Get returns a certificate with at least half of its lifetime left.
func (c *ClientCertificate) Get() (tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now().Round(0)
	if now.Before(c.due) {
		return c.last, nil
	}
	pair, err := c.ca.Client(dedicated.PlatformUser(), nil)
	if err != nil {
		return tls.Certificate{}, err
	}
	if c.last, err = pair.TLS(); err != nil {
		return tls.Certificate{}, err
	}
	c.due = now.Add(pki.ClientLifetime / 2)
	return c.last, nil
}
