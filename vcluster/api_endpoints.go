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

// apiEndpoints keeps the endpoints of the Service default/kubernetes, upstream's
// way, but of the address by which the space's pods reach the API: the service's
// own. What is behind it is the host's (N1). Where pods don't reach the API,
// there are none, and those of earlier days lose the address.
type apiEndpoints struct {
	reconcilers.EndpointReconciler
	address net.IP
	served  bool
	// quiet tells for how long nothing has been written. An idle space is not
	// read every ten seconds.
	quiet func() time.Duration
	last  time.Time
}

func newAPIEndpoints(client kubernetes.Interface, address net.IP, served bool, quiet func() time.Duration) *apiEndpoints {
	adapter := reconcilers.NewEndpointsAdapter(client.CoreV1(), client.DiscoveryV1())
	return &apiEndpoints{
		EndpointReconciler: reconcilers.NewMasterCountEndpointReconciler(1, adapter), address: address, served: served, quiet: quiet,
	}
}

// ReconcileEndpoints is called by one goroutine, time and again, once the API is
// ready.
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

// RemoveEndpoints is called before each start, and at each stop: the endpoints
// stay, as a space that sleeps is woken by who calls.
func (*apiEndpoints) RemoveEndpoints(string, net.IP, []corev1.EndpointPort) error { return nil }
