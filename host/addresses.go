// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// addresses gives each pod an address of its node's range, and never one that
// another pod has.
//
// It stands in for kwok's own pool, which forgets on a restart the addresses of
// pods that run, and gives them out again.
type addresses struct {
	nodes map[string]node
	// exists tells whether the pod is still known. An address asked for by a
	// pod that is not would never be released.
	exists func(namespace, name string, uid types.UID) bool

	mu    sync.Mutex
	byPod map[types.UID]netip.Addr
	used  map[netip.Addr]bool
	last  map[string]netip.Addr // by node: the one given last
}

func newAddresses(nodes []node, exists func(namespace, name string, uid types.UID) bool) *addresses {
	a := &addresses{
		nodes:  make(map[string]node, len(nodes)),
		exists: exists,
		byPod:  map[types.UID]netip.Addr{},
		used:   map[netip.Addr]bool{},
		last:   map[string]netip.Addr{},
	}
	for _, n := range nodes {
		a.nodes[n.name] = n
	}
	return a
}

// ofNode returns the addresses of a node.
func (a *addresses) ofNode(name string) ([]string, error) {
	n, ok := a.nodes[name]
	if !ok {
		return nil, fmt.Errorf("node %s is not simulated", name)
	}
	return []string{n.address.String()}, nil
}

// ofPod returns the addresses of a pod, the same each time it is asked.
func (a *addresses) ofPod(nodeName string, hostNetwork bool, uid, name, namespace string) ([]string, error) {
	if hostNetwork {
		return a.ofNode(nodeName)
	}
	n, ok := a.nodes[nodeName]
	if !ok {
		return nil, fmt.Errorf("node %s is not simulated", nodeName)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if address, ok := a.byPod[types.UID(uid)]; ok {
		return []string{address.String()}, nil
	}
	if !a.exists(namespace, name, types.UID(uid)) {
		return nil, fmt.Errorf("pod %s/%s is gone", namespace, name)
	}
	address, err := a.free(n)
	if err != nil {
		return nil, err
	}
	a.take(types.UID(uid), address)
	a.last[nodeName] = address
	return []string{address.String()}, nil
}

// free returns an address of n's range that no pod has. It goes round the
// range, so that a freed address rests a while before another pod has it.
func (a *addresses) free(n node) (netip.Addr, error) {
	start, ok := a.last[n.name]
	if !ok {
		start = n.pods.Addr()
	}
	for address := start.Next(); address != start; address = address.Next() {
		if !n.pods.Contains(address) {
			address = n.pods.Addr() // never given: it names the network
			if address == start {
				break
			}
			continue
		}
		if !a.used[address] {
			return address, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("pod range %s of node %s is used up", n.pods, n.name)
}

// observe takes note of the addresses a pod has, or no longer has because it
// has ended.
func (a *addresses) observe(pod *corev1.Pod) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		a.release(pod.UID)
		return
	}
	n, simulated := a.nodes[pod.Spec.NodeName]
	if !simulated || pod.Spec.HostNetwork || pod.Status.PodIP == "" {
		return
	}
	address, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil || !n.pods.Contains(address) {
		return // not one of ours: somebody wrote the status by hand
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.byPod[pod.UID]; !known && !a.used[address] {
		a.take(pod.UID, address)
	}
}

// release frees a pod's address.
func (a *addresses) release(pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if address, ok := a.byPod[pod]; ok {
		delete(a.byPod, pod)
		delete(a.used, address)
	}
}

// take records that pod has address. The caller holds mu.
func (a *addresses) take(pod types.UID, address netip.Addr) {
	a.byPod[pod] = address
	a.used[address] = true
}
