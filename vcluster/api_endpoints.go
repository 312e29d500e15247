// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
)

// apiEndpoints maintains the endpoints of the Service default/kubernetes like upstream, but with the service's own
// address, at which the space's pods reach the API. What is behind it belongs to the host (N1). If pods don't reach the
// API, there are no endpoints, and old ones are removed.
type apiEndpoints struct {
	reconcilers.EndpointReconciler
	address net.IP
	served  bool
	// quiet returns for how long nothing has been written, so that an idle space is not read every ten seconds.
	quiet func() time.Duration
	last  time.Time
}

func newAPIEndpoints(client kubernetes.Interface, address net.IP, served bool, quiet func() time.Duration) *apiEndpoints {
	adapter := reconcilers.NewEndpointsAdapter(client.CoreV1(), client.DiscoveryV1())
	return &apiEndpoints{
		EndpointReconciler: reconcilers.NewMasterCountEndpointReconciler(1, adapter), address: address, served: served, quiet: quiet,
	}
}

// ReconcileEndpoints is called periodically by one goroutine when the API is ready.
func (e *apiEndpoints) ReconcileEndpoints(service string, _ net.IP, ports []corev1.EndpointPort, _ bool) (err error) {
	began := time.Now()
	if e.quiet() > began.Sub(e.last) {
		return nil
	}
	if e.served {
		err = e.EndpointReconciler.ReconcileEndpoints(service, e.address, ports, true)
	} else {
		err = e.EndpointReconciler.RemoveEndpoints(service, e.address, ports)
	}
	if err == nil {
		e.last = began
	}
	return err
}

// RemoveEndpoints is called before each start and at each stop. It does nothing, because a request to the endpoints of
// a sleeping space wakes it.
func (*apiEndpoints) RemoveEndpoints(string, net.IP, []corev1.EndpointPort) error { return nil }
