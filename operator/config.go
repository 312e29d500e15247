// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// DefaultLeaseNamespace is the namespace of the Lease if the operator does not run in a pod.
const DefaultLeaseNamespace = "kube-system"

// Config configures an operator.
type Config struct {
	// Host is the cluster with the objects.
	Host *rest.Config
	// LeaderElection lets one of several operators work at a time. They share a Lease in LeaseNamespace, which is that of the pod
	// if it is empty, or DefaultLeaseNamespace outside of pods.
	LeaderElection bool
	LeaseNamespace string
	// ShardNamespace is the namespace of the Shards and Leases of platforms. Defaults to LeaseNamespace.
	ShardNamespace string
	// MetricsListen is HOST:PORT of /metrics, /livez, and /readyz over plain HTTP. If it is empty, they are not served.
	MetricsListen string
	// PlatformName is the name of the platform of new spaces in a BerthConfiguration that the operator creates. Defaults to
	// v1alpha1.DefaultPlatformName.
	PlatformName string
	// DefaultTenant, if set, is the default tenant, whatever the BerthConfiguration says: the operator writes it there.
	DefaultTenant string
	Logger        logr.Logger
	// NewClient makes the client of all writes. Tests make one that fails. Defaults to that of controller-runtime.
	NewClient client.NewClientFunc
}

// complete sets defaults.
func (c *Config) complete() {
	c.PlatformName = cmp.Or(c.PlatformName, v1alpha1.DefaultPlatformName)
	if c.NewClient == nil {
		c.NewClient = client.New
	}
	if c.LeaseNamespace == "" {
		c.LeaseNamespace = podNamespace()
	}
	c.ShardNamespace = cmp.Or(c.ShardNamespace, c.LeaseNamespace)
}
