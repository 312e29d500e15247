// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"k8s.io/client-go/rest"
)

// Shared is the shared host cluster as a shard sees it: one set of watches for all its spaces, and what it allocates to their
// Services. It is safe for concurrent use once started.
type Shared struct {
	*Host
	*Addresses
}

// NewShared prepares the watches on the cluster that config reaches. The account
// of config may impersonate the spaces' accounts, and reads, of the resources that
// are synced, objects that bear the space label in all namespaces, and all
// events, volumes, classes, nodes, ingresses, gateways and routes. Ingresses it
// reads for gateways, too: both claim host names.
func NewShared(config *rest.Config, o Options) (*Shared, error) {
	h, err := NewHost(config, o)
	if err != nil {
		return nil, err
	}
	return &Shared{h, NewAddresses(h)}, nil
}
