// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/berth-dev/berth/bounds"
)

const (
	// targetsPerSecond is how many targets a controller of endpoints handles in a second, once it has handled targetsAtOnce:
	// each takes 5 to 100 µs, and any write of one pod may have it handle all targets of the pod's Services.
	targetsPerSecond = 20_000
	targetsAtOnce    = 100_000
	// podsLikeTarget is how many pods can be compared with a selector in the time that a target takes.
	podsLikeTarget = 100
)

// serviceTargets bounds the targets of all Services of a space, which are the pods that they select, times their ports: controllers
// of endpoints hold and sort several objects for each, and remember each pod of each Service.
type serviceTargets struct {
	ctx     context.Context // the controller's: listers have none
	account *bounds.Account
	pods    corelisters.PodLister
	pace    *rate.Limiter

	mu    sync.Mutex
	of    map[string]int64 // by namespace and name of the Services that there are
	total int64
}

// BoundTargets returns a view of seen for a controller of endpoints that runs until ctx ends. It passes the error for a Service with
// too many targets where the controller lists its pods, because the controller makes an event of that.
func BoundTargets(ctx context.Context, account *bounds.Account, seen informers.SharedInformerFactory) informers.SharedInformerFactory {
	t := &serviceTargets{
		ctx: ctx, account: account, pods: seen.Core().V1().Pods().Lister(),
		pace: rate.NewLimiter(targetsPerSecond, targetsAtOnce), of: map[string]int64{},
	}
	context.AfterFunc(ctx, func() { account.Set(bounds.ServiceTargets, 0) })
	return CoreView{seen, func(all coreinformers.Interface) coreinformers.Interface {
		return boundedTargets{podView{Interface: all, list: listTargets}, t}
	}}
}

// refusedKey is a label that no pod has. A selector with it has the error as its value.
const refusedKey = "berth.dev/ too many targets"

// bound returns the Service, or one whose pods can't be listed.
func (t *serviceTargets) bound(service *corev1.Service) (*corev1.Service, error) {
	key := service.Namespace + "/" + service.Name
	if service.Spec.Type == corev1.ServiceTypeExternalName || service.Spec.Selector == nil {
		t.forget(key)
		return service, nil
	}
	pods, err := t.pods.Pods(service.Namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	selector := labels.Set(service.Spec.Selector).AsSelectorPreValidated()
	selected := 0
	for _, pod := range pods {
		if selector.Matches(labels.Set(pod.Labels)) {
			selected++
		}
	}
	targets := selected * max(1, len(service.Spec.Ports))
	work := len(pods) / podsLikeTarget
	refused := t.take(key, int64(targets))
	if refused == nil {
		work += targets
	}
	if err := t.pace.WaitN(t.ctx, min(work, targetsAtOnce)); err != nil {
		return nil, fmt.Errorf("handle a service: %w", err)
	}
	if refused != nil {
		service = service.DeepCopy()
		service.Spec.Selector = map[string]string{refusedKey: refused.Error()}
	}
	return service, nil
}

// take notes the targets of a Service, or returns an error if there are too many.
func (t *serviceTargets) take(key string, targets int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	others, limit := t.total-t.of[key], t.account.Limit(bounds.ServiceTargets)
	if targets > t.of[key] && targets > limit-others {
		t.account.Refuse(bounds.ServiceTargets)
		return &bounds.ExceededError{Quantity: bounds.ServiceTargets, Asked: targets, Used: others, Limit: limit, Alone: targets > limit}
	}
	t.of[key], t.total = targets, others+targets
	t.account.Set(bounds.ServiceTargets, t.total)
	return nil
}

func (t *serviceTargets) forget(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total -= t.of[key]
	delete(t.of, key)
	t.account.Set(bounds.ServiceTargets, t.total)
}

type boundedTargets struct {
	coreinformers.Interface
	targets *serviceTargets
}

func (b boundedTargets) Services() coreinformers.TypedServiceInformer {
	return coreinformers.ToTypedServiceInformer(targetServiceInformer{b.Interface.Services(), b.targets})
}

type targetServiceInformer struct {
	coreinformers.ServiceInformer
	targets *serviceTargets
}

func (i targetServiceInformer) Lister() corelisters.ServiceLister {
	return targetServiceLister{i.ServiceInformer.Lister(), i.targets}
}

type targetServiceLister struct {
	corelisters.ServiceLister
	targets *serviceTargets
}

func (l targetServiceLister) Services(namespace string) corelisters.ServiceNamespaceLister {
	return targetServices{l.ServiceLister.Services(namespace), namespace, l.targets}
}

type targetServices struct {
	corelisters.ServiceNamespaceLister
	namespace string
	targets   *serviceTargets
}

func (l targetServices) Get(name string) (*corev1.Service, error) {
	service, err := l.ServiceNamespaceLister.Get(name)
	if err != nil {
		if apierrors.IsNotFound(err) {
			l.targets.forget(l.namespace + "/" + name)
		}
		return nil, err
	}
	return l.targets.bound(service)
}

// listTargets returns the error that a selector has as its value.
func listTargets(next corelisters.PodNamespaceLister, selector labels.Selector) ([]*corev1.Pod, error) {
	if refused, ok := selector.RequiresExactMatch(refusedKey); ok {
		return nil, refusedTargets(refused)
	}
	return next.List(selector)
}

// refusedTargets is the text of an error.
type refusedTargets string

func (r refusedTargets) Error() string { return string(r) }
