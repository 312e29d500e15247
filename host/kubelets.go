// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kwok/pkg/utils/informer"
)

const (
	// As of a kubelet: a lease of 40 s, renewed four times in that time.
	leaseSeconds = 40
	leaseRenewal = 10 * time.Second
	// keepInterval is how soon a node comes back that somebody deletes.
	keepInterval = 5 * time.Second
	// retryInterval is how soon a pod is tried again whose step kwok has given
	// up, as it does on most errors.
	retryInterval = 30 * time.Second
	// pollInterval is how often to look for something awaited.
	pollInterval = 20 * time.Millisecond
)

// kubelets simulates the kubelets of its nodes.
type kubelets struct {
	client    kubernetes.Interface
	nodes     []node
	addresses *addresses
	// ownNodes watches the simulated nodes, ownPods all pods on any node.
	ownNodes, ownPods informers.SharedInformerFactory
}

// runKubelets simulates the kubelets of nodes until ctx ends: it creates and
// keeps the Nodes, renews their leases, and runs kwok's controllers. It calls
// ready once all nodes are Ready, and returns when its goroutines have ended.
func runKubelets(ctx context.Context, config *rest.Config, nodes []node, ready func()) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client of simulated nodes: %w", err)
	}
	if err := awaitLeaseNamespace(ctx, client); err != nil {
		return err
	}
	if err := removeSurplusNodes(ctx, client, nodes); err != nil {
		return err
	}
	if err := ensureNodes(ctx, client, nodes); err != nil {
		return err
	}
	k := &kubelets{
		client:   client,
		nodes:    nodes,
		ownNodes: newFactory(client, retryInterval, func(o *metav1.ListOptions) { o.LabelSelector = simulatedLabel }),
		ownPods: newFactory(client, retryInterval, func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		}),
	}
	k.addresses = newAddresses(nodes, k.podExists)
	return k.run(ctx, ready)
}

func (k *kubelets) run(ctx context.Context, ready func()) error {
	kwok, err := startKwok(ctx, k.client, k.nodes, k.addresses)
	if err != nil {
		return err
	}
	defer kwok.stop()

	var group sync.WaitGroup
	defer group.Wait()
	defer k.ownNodes.Shutdown()
	defer k.ownPods.Shutdown()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	if err := k.feed(ctx, kwok); err != nil {
		return err
	}
	for _, n := range k.nodes {
		heartbeat := lease.NewController(clock.RealClock{}, k.client, n.name, leaseSeconds, nil, leaseRenewal,
			n.name, corev1.NamespaceNodeLease, nil)
		group.Go(func() { heartbeat.Run(ctx) })
	}
	group.Go(func() { wait.UntilWithContext(ctx, k.keepNodes, keepInterval) })

	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, k.allReady); err != nil {
		return fmt.Errorf("wait for simulated nodes to be ready: %w", err)
	}
	ready()
	<-ctx.Done()
	return nil
}

// feed starts the informers and feeds kwok from them.
func (k *kubelets) feed(ctx context.Context, kwok *kwok) error {
	nodes := k.ownNodes.Core().V1().Nodes().Informer()
	pods := k.ownPods.Core().V1().Pods().Informer()
	k.ownNodes.Start(ctx.Done())
	k.ownPods.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced, pods.HasSynced) {
		return fmt.Errorf("sync informers of simulated nodes: %w", ctx.Err())
	}
	// Before the first new pod is given an address, all that are taken must be known.
	for _, pod := range pods.GetStore().List() {
		k.addresses.observe(pod.(*corev1.Pod))
	}
	if _, err := nodes.AddEventHandler(handler(func(event informer.EventType, _, n *corev1.Node) {
		kwok.feedNode(ctx, event, n)
	})); err != nil {
		return fmt.Errorf("watch simulated nodes: %w", err)
	}
	if _, err := pods.AddEventHandler(handler(func(event informer.EventType, old, pod *corev1.Pod) {
		if event == informer.Deleted {
			k.addresses.release(pod.UID)
		} else {
			k.addresses.observe(pod)
		}
		if event == informer.Deleted || isDue(old, pod) {
			kwok.feedPod(ctx, event, pod)
		}
	})); err != nil {
		return fmt.Errorf("watch pods of simulated nodes: %w", err)
	}
	return nil
}

// isDue tells whether any stage can apply to pod, which was old before, if it
// was. To find out that none does costs kwok more than all else that becomes of
// a pod.
func isDue(old, pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		// kwok ends the pod and deletes it in one go: what changes meanwhile is
		// its own doing. Without grace, somebody else deletes it; the API server
		// does that in two writes, and may have been cut off between them.
		if old != nil && old.ResourceVersion != pod.ResourceVersion {
			return old.DeletionTimestamp == nil && ptr.Deref(pod.DeletionGracePeriodSeconds, 0) > 0
		}
		return true
	}
	return pod.Status.Phase == corev1.PodPending ||
		pod.Status.Phase == corev1.PodRunning && pod.Spec.RestartPolicy != corev1.RestartPolicyAlways
}

// handler makes an event handler of a function that takes the object as it was,
// if it was, and as it is.
func handler[T *corev1.Node | *corev1.Pod](handle func(event informer.EventType, old, object T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { handle(informer.Added, nil, obj.(T)) },
		UpdateFunc: func(old, obj any) { handle(informer.Modified, old.(T), obj.(T)) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			handle(informer.Deleted, nil, obj.(T))
		},
	}
}

// keepNodes creates nodes anew that somebody has deleted.
func (k *kubelets) keepNodes(ctx context.Context) {
	var missing []node
	for _, n := range k.nodes {
		if _, err := k.nodeLister().Get(n.name); err != nil {
			missing = append(missing, n)
		}
	}
	if err := ensureNodes(ctx, k.client, missing); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Keep simulated nodes, will retry")
	}
}

func (k *kubelets) allReady(context.Context) (bool, error) {
	for _, n := range k.nodes {
		if object, err := k.nodeLister().Get(n.name); err != nil || !isReady(object) {
			return false, nil // the one error is that the node is not there yet
		}
	}
	return true, nil
}

func (k *kubelets) podExists(namespace, name string, uid types.UID) bool {
	pod, err := k.ownPods.Core().V1().Pods().Lister().Pods(namespace).Get(name)
	return err == nil && pod.UID == uid
}

func (k *kubelets) nodeLister() corelisters.NodeLister {
	return k.ownNodes.Core().V1().Nodes().Lister()
}

// awaitLeaseNamespace waits until the API server has made the namespace of node
// leases, which it does a moment after it is ready.
func awaitLeaseNamespace(ctx context.Context, client kubernetes.Interface) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		_, last = client.CoreV1().Namespaces().Get(ctx, corev1.NamespaceNodeLease, metav1.GetOptions{})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for namespace %s: %w", corev1.NamespaceNodeLease, last)
	}
	return nil
}
