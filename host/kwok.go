// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/kwok/pkg/config/resources"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"
	"sigs.k8s.io/kwok/pkg/utils/informer"
)

const (
	nodeWorkers = 1
	podWorkers  = 8
)

// kwok is kwok's node controller and pod controller, fed by the caller.
//
// They are assembled here rather than by kwok's own Controller: that one's
// event broadcaster and informers can't be stopped, and it holds node leases in
// a name of its own, so that a restart waits for the last holder's to run out.
type kwok struct {
	end       context.CancelFunc
	nodes     chan informer.Event[*corev1.Node]
	pods      chan informer.Event[*corev1.Pod]
	nodeClock *queueClock
	podClock  *queueClock
}

// startKwok starts the controllers. They act on what they are fed, until stop
// is called; ctx is for its values.
func startKwok(ctx context.Context, client kubernetes.Interface, nodes []node, addresses *addresses) (*kwok, error) {
	if err := warmExpressions(); err != nil {
		return nil, err
	}
	nodeStages, err := nodeLifecycle()
	if err != nil {
		return nil, err
	}
	podStages, err := podLifecycle()
	if err != nil {
		return nil, err
	}
	simulated := make(map[string]*controllers.NodeInfo, len(nodes))
	for _, n := range nodes {
		simulated[n.name] = &controllers.NodeInfo{}
	}

	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	ctx = withKwokLog(ctx)
	k := &kwok{
		end: end,
		// Unbuffered, so that an event taken means the one before is dealt with.
		nodes:     make(chan informer.Event[*corev1.Node]),
		pods:      make(chan informer.Event[*corev1.Pod]),
		nodeClock: newQueueClock(ctx),
		podClock:  newQueueClock(ctx),
	}
	nodeController, err := controllers.NewNodeController(controllers.NodeControllerConfig{
		Clock:                k.nodeClock,
		TypedClient:          client,
		Lifecycle:            resources.NewStaticGetter(nodeStages),
		PlayStageParallelism: nodeWorkers,
	})
	if err != nil {
		end()
		return nil, fmt.Errorf("make kwok's node controller: %w", err)
	}
	podController, err := controllers.NewPodController(controllers.PodControllerConfig{
		Clock:                k.podClock,
		TypedClient:          client,
		Lifecycle:            resources.NewStaticGetter(podStages),
		PlayStageParallelism: podWorkers,
		NodeGetFunc: func(name string) (*controllers.NodeInfo, bool) {
			info, ok := simulated[name]
			return info, ok
		},
		FuncMap: gotpl.FuncMap{
			"NodeIPsWith": addresses.ofNode,
			"PodIPsWith":  addresses.ofPod,
		},
	})
	if err != nil {
		end()
		return nil, fmt.Errorf("make kwok's pod controller: %w", err)
	}
	if err := nodeController.Start(ctx, k.nodes); err != nil {
		end()
		return nil, fmt.Errorf("start kwok's node controller: %w", err)
	}
	if err := podController.Start(ctx, k.pods); err != nil {
		end()
		return nil, fmt.Errorf("start kwok's pod controller: %w", err)
	}
	return k, nil
}

// feedNode hands the controller a node that was added, modified or deleted.
func (k *kwok) feedNode(ctx context.Context, event informer.EventType, n *corev1.Node) {
	select {
	case k.nodes <- informer.Event[*corev1.Node]{Type: event, Object: n}:
	case <-ctx.Done():
	}
}

// feedPod hands the controller a pod that was added, modified or deleted.
func (k *kwok) feedPod(ctx context.Context, event informer.EventType, pod *corev1.Pod) {
	select {
	case k.pods <- informer.Event[*corev1.Pod]{Type: event, Object: pod}:
	case <-ctx.Done():
	}
}

// stop ends the controllers. Nothing may be fed any more. It waits for their
// queues; their workers can't be waited for, but end with their requests, which
// are cut off.
func (k *kwok) stop() {
	// A controller that is ended while it deals with an event hands it to a
	// worker that may have gone, and waits for ever. An event of no type is
	// taken only once the last one is dealt with, and then ignored.
	k.nodes <- informer.Event[*corev1.Node]{}
	k.pods <- informer.Event[*corev1.Pod]{}
	k.end()
	<-k.nodeClock.ended
	<-k.podClock.ended
}
