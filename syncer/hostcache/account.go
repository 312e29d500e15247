// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/translate"
)

// Account returns a configuration for clients that act as the space's own account.
func (h *Host) Account(space translate.Space) *rest.Config {
	if h.Only != "" { // config already acts as the account
		return rest.CopyConfig(h.config)
	}
	return AsAccount(h.config, space)
}

// AsAccount returns a copy of config that acts as the space's service account.
func AsAccount(config *rest.Config, space translate.Space) *rest.Config {
	config = rest.CopyConfig(config)
	// The host adds the groups of a service account. Naming them here would require the right to impersonate members of
	// any group.
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + space.HostNamespace() + ":" + ServiceAccount}
	return config
}

// ServiceAccount is the name of the service account in each space's host namespace that the space's syncer writes with.
const ServiceAccount = "berth-syncer"
