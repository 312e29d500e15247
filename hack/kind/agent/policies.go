// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
)

// policies keeps the node's packet filter in line with the cluster's network policies: the rules are written anew, all
// at once, after each change.
type policies struct {
	nodes      corelisters.NodeLister
	pods       corelisters.PodLister
	namespaces corelisters.NamespaceLister
	policies   networkinglisters.NetworkPolicyLister
	node       string
	applied    string
}

func newPolicies(factory informers.SharedInformerFactory, node string) part {
	core, networking := factory.Core().V1(), factory.Networking().V1()
	n := &policies{
		nodes:      core.Nodes().Lister(),
		pods:       core.Pods().Lister(),
		namespaces: core.Namespaces().Lister(),
		policies:   networking.NetworkPolicies().Lister(),
		node:       node,
	}
	p := newPart("policies", n.sync)
	watch(p, core.Nodes().Informer())
	watch(p, core.Pods().Informer())
	watch(p, core.Namespaces().Informer())
	watch(p, networking.NetworkPolicies().Informer())
	return p
}

func (n *policies) sync(ctx context.Context) error {
	pods, err := n.pods.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	namespaces, err := n.namespaces.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	all, err := n.policies.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list policies: %w", err)
	}
	node, err := n.nodes.Get(n.node)
	if err != nil {
		return fmt.Errorf("find node: %w", err)
	}
	script := newRules(pods, namespaces, all).script(n.node, node.Spec.PodCIDR)
	if script == n.applied {
		return nil
	}
	if err := applyRules(ctx, script); err != nil {
		return err
	}
	n.applied = script
	return nil
}

// hasAddress says whether packets of the pod's address are the pod's: not so for one on the node's own network, nor
// for one that has ended.
func hasAddress(pod *corev1.Pod) bool {
	return pod.Status.PodIP != "" && !pod.Spec.HostNetwork &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// has says whether the policy restricts a direction.
func has(policy *networkingv1.NetworkPolicy, direction networkingv1.PolicyType) bool {
	for _, t := range policy.Spec.PolicyTypes { // the API server fills in the default
		if t == direction {
			return true
		}
	}
	return false
}
