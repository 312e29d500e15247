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

// PodCertificates issues what the pods of each space know their API by: the
// CA is that of every space's kube-root-ca.crt, and the address is the
// space's own. Its methods may be called concurrently.
type PodCertificates struct {
	CA *pki.CA
	// Domain of the spaces' own names.
	Domain string
	// Address is the cluster IP of a space's API, "" if it has none yet or the space
	// is gone.
	Address func(space string) string

	mu     sync.Mutex
	issued map[string]issued // by space
}

type issued struct {
	address string
	serving *pki.Serving
}

// Get is for [Pods.Certificate].
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

// keep remembers a certificate, and forgets those of spaces that are gone, or have
// got another address. One of a space without an address is not kept: nothing
// would say when the space is gone.
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
