// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/translate"
)

// Pod is the host pod of a space's pod v, as last seen; ok is false while there
// is none. It is v's by its recorded identity, UID included, not by its name
// alone: another pod of that name, of an earlier life of v's or nobody's, is not
// returned. It must not be changed.
func (h *Host) Pod(space translate.Space, v *corev1.Pod) (host *corev1.Pod, ok bool) {
	name := space.HostName(v.Namespace, v.Name, translate.LimitSubdomain)
	host, ok = cached[*corev1.Pod](h, pods, space.HostNamespace(), name)
	if !ok {
		return nil, false
	}
	id, ours := translate.IdentityOf(host)
	want := translate.Identity{Space: space.Name, Namespace: v.Namespace, Name: v.Name, UID: v.UID}
	if !ours || v.UID == "" || id != want {
		return nil, false
	}
	return host, true
}

// Account is a configuration of clients that act as the space's own account.
func (h *Host) Account(space translate.Space) *rest.Config {
	if h.only != "" { // it is the account
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
