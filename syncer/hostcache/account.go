// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/translate"
)

// Account is a configuration of clients that act as the space's own account.
func (h *Host) Account(space translate.Space) *rest.Config {
	if h.Only != "" { // it is the account
		return rest.CopyConfig(h.config)
	}
	return AsAccount(h.config, space)
}

// AsAccount is config as the space's own account on the host that it reaches.
func AsAccount(config *rest.Config, space translate.Space) *rest.Config {
	config = rest.CopyConfig(config)
	// The groups are left to the host, which knows those of a service account: to
	// name them would take the right to pose as a member of any group.
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + space.HostNamespace() + ":" + ServiceAccount}
	return config
}

// ServiceAccount is the name of the account, in each space's host namespace,
// that the space's syncer writes as.
const ServiceAccount = "berth-syncer"
