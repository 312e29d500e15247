// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podaccess

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// Dialer connects the clients of webhooks and API services and the proxies of pods and services: what they dial is a pod's
// address, and reaches that pod and nothing else, whatever else has the address
// where the pod runs.
type Dialer struct {
	Pods Pods
	List corelisters.PodLister
}

// dialTimeout bounds what nobody else does: a client that does not wait any more leaves its transport dialling.
const dialTimeout = 30 * time.Second

// DialContext is a [utilnet.DialFunc].
func (d Dialer) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, errUnreachable)
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("connect to %s: %q is not a port", address, number)
	}
	pod, err := d.at(ip)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return d.Pods.Dial(ctx, pod, uint16(port))
}

// at is the pod that has the address: of those that do not run any more, others
// may have got it.
func (d Dialer) at(ip netip.Addr) (*corev1.Pod, error) {
	all, err := d.List.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	for _, pod := range all {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, own := range pod.Status.PodIPs {
			if addr, err := netip.ParseAddr(own.IP); err == nil && addr.Unmap() == ip.Unmap() {
				return pod, nil
			}
		}
	}
	return nil, fmt.Errorf("no pod that runs has the address %s", ip)
}
