// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/utils/clock"
)

const (
	// listsShare is how long a controller may look for pods in a second, once it has done that for listsAtOnce.
	listsShare  = 500 * time.Millisecond
	listsAtOnce = 2 * time.Second
)

// listsPods says which controllers compare all pods of a namespace with a selector, for each of their own objects: a ReplicaSet that is
// scaled down has that done for all ReplicaSets of its Deployment.
func listsPods(name string) bool {
	switch name {
	case names.ReplicaSetController, names.ReplicationControllerController, names.DisruptionController, names.HorizontalPodAutoscalerController:
		return true
	}
	return false
}

// paceLists returns a view of seen for a controller that runs until ctx ends, in which lists of pods take their time: a tenant may have
// as many objects that select pods as pods.
func paceLists(ctx context.Context, c clock.PassiveClock, seen informers.SharedInformerFactory) informers.SharedInformerFactory {
	p := &listPace{ctx, c, rate.NewLimiter(rate.Limit(listsShare.Microseconds()), int(listsAtOnce.Microseconds()))}
	return coreView{seen, func(all coreinformers.Interface) coreinformers.Interface { return podLists{all, p.list} }}
}

// listPace counts microseconds.
type listPace struct {
	ctx     context.Context // the controller's: listers have none
	clock   clock.PassiveClock
	limiter *rate.Limiter
}

// took waits after a list that was begun at a time.
func (p *listPace) took(begun time.Time) error {
	n := min(p.clock.Since(begun), listsAtOnce).Microseconds()
	if err := p.limiter.WaitN(p.ctx, int(n)); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	return nil
}

// list waits after the list.
func (p *listPace) list(next corelisters.PodNamespaceLister, selector labels.Selector) ([]*corev1.Pod, error) {
	begun := p.clock.Now()
	pods, err := next.List(selector)
	if err != nil {
		return nil, err
	}
	return pods, p.took(begun)
}
