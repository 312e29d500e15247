// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/services"
	"github.com/berth-dev/berth/translate"
)

// ServiceAccount is the name of the account, in each space's host namespace,
// that the space's syncer writes as.
const ServiceAccount = hostcache.ServiceAccount

// AsAccount is config as the space's own account on the host that it reaches.
func AsAccount(config *rest.Config, space translate.Space) *rest.Config {
	return hostcache.AsAccount(config, space)
}

// QuotaExceeded reports whether the host refused an object for a quota.
func QuotaExceeded(err error) bool { return engine.QuotaExceeded(err) }

// Options say what spaces share of a host, and how.
type Options = hostcache.Options

// Host is the shared host cluster as a shard sees it: one set of watches for all its spaces, and what it allocates to their
// Services. It is safe for concurrent use once started.
type Host struct {
	*hostcache.Host
	*services.Addresses
}

// NewHost prepares the watches on the cluster that config reaches. The account
// of config may impersonate the spaces' accounts, and reads, of the resources that
// are synced, objects that bear the space label in all namespaces, and all
// events, volumes, classes, nodes, ingresses, gateways and routes. Ingresses it
// reads for gateways, too: both claim host names.
func NewHost(config *rest.Config, o Options) (*Host, error) {
	h, err := hostcache.NewHost(config, o)
	if err != nil {
		return nil, err
	}
	return &Host{h, services.NewAddresses(h)}, nil
}
