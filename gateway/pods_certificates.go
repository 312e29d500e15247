// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/tls"
	"fmt"
	"maps"
	"sync"

	"github.com/berth-dev/berth/vcluster/pki"
)

// PodCertificates issues the serving certificates of spaces' APIs for their pods. The CA is the one in each space's
// kube-root-ca.crt, and the address is the space's cluster IP. It is safe for concurrent use.
type PodCertificates struct {
	CA *pki.CA
	// Domain is the cluster domain of spaces.
	Domain string
	// Address returns the cluster IP of a space's API; "" if it has none yet or the space is gone.
	Address func(space string) string

	mu     sync.Mutex
	issued map[string]issued // by space
}

type issued struct {
	address string
	serving *pki.Serving
}

// Get implements [Pods.Certificate].
func (c *PodCertificates) Get(space string) (*tls.Certificate, error) {
	address := c.Address(space)
	c.mu.Lock()
	have, ok := c.issued[space]
	c.mu.Unlock()
	if !ok || have.address != address {
		hosts := []string{"kubernetes.default.svc." + c.Domain, "kubernetes.default.svc", "kubernetes.default", "kubernetes"}
		if address != "" {
			hosts = append(hosts, address)
		}
		serving, err := c.CA.Serving(hosts...)
		if err != nil {
			return nil, fmt.Errorf("issue the certificate for pods of space %s: %w", space, err)
		}
		have = issued{address, serving}
		c.keep(space, have)
	}
	return have.serving.Get(nil)
}

// keep stores a certificate, and removes those of spaces that are gone or have another address. A certificate of a
// space without an address is not stored, because nothing would show when the space is gone.
func (c *PodCertificates) keep(space string, have issued) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.issued == nil {
		c.issued = map[string]issued{}
	}
	maps.DeleteFunc(c.issued, func(other string, of issued) bool { return c.Address(other) != of.address })
	if have.address != "" {
		c.issued[space] = have
	}
}
