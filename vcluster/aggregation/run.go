// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	v1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	clientv1 "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	informersv1 "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"

	"github.com/berth-dev/berth/internal/safego"
)

const (
	// workers is how many servers are tried at once: one that hangs holds one up for
	// as long as two answers may take.
	workers = 4
	// refresh is how often a server is tried, as upstream's aggregator does.
	refresh = 30 * time.Second
	// soonest is how soon one is tried again that could not be had; it takes longer each time.
	soonest = 500 * time.Millisecond
)

// Config is what [Services.Run] needs of a space.
type Config struct {
	APIServices informersv1.APIServiceInformer
	Services    coreinformers.ServiceInformer
	Slices      discoveryinformers.EndpointSliceInformer
	// Client writes conditions.
	Client clientv1.APIServicesGetter
	// Resolve finds an address of a service, and Dial connects to it. Tenants choose
	// both, so Dial must refuse what they must not reach.
	Resolve func(namespace, name string, port int32) (*url.URL, error)
	Dial    utilnet.DialFunc
	// Certificate is what servers know the space's API server by.
	Certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	// Discovery gets what they offer.
	Discovery aggregated.ResourceManager
}

// run is what there is while a space has, or had, API services that pods serve.
type run struct {
	Config
	*Services
	queue     workqueue.TypedRateLimitingInterface[string]
	discovery aggregatorapiserver.DiscoveryAggregationController
	// ended is when ctx of Run has.
	ended context.Context
}

// Load has what the space has from before answer at once, as its status says that it
// can. Discovery tells that there is more to be had from each, so that who must know all
// waits. It is for a space that starts, before anybody asks.
func (s *Services) Load(c Config) error {
	all, err := c.APIServices.Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(v *v1.APIService) bool { return v.Spec.Service == nil })
	slices.SortFunc(all, func(a, b *v1.APIService) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, v := range all {
		made, err := newServer(&c, v)
		if err != nil || !s.put(v.Name, made) {
			continue // Run tells
		}
		c.Discovery.AddGroupVersion(v.Spec.Group, apidiscoveryv2.APIVersionDiscovery{
			Version: v.Spec.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessStale,
		})
		c.Discovery.SetGroupVersionPriority(metav1.GroupVersion{Group: v.Spec.Group, Version: v.Spec.Version},
			int(v.Spec.GroupPriorityMinimum), int(v.Spec.VersionPriority))
	}
	return nil
}

// Run keeps the services what the space's objects say, until ctx ends. Until there is
// one it only waits.
func (s *Services) Run(ctx context.Context, c Config) {
	defer s.close()
	if !first(ctx, c.APIServices.Informer()) {
		return
	}
	a := &run{
		Config: c, Services: s, ended: ctx, discovery: aggregatorapiserver.NewDiscoveryManager(c.Discovery),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](soonest, refresh)),
	}
	if err := a.watch(); err != nil {
		klog.FromContext(ctx).Error(err, "Watching API services")
		a.queue.ShutDown()
		return
	}
	var running sync.WaitGroup
	safego.Go(&running, "discover aggregated APIs", func() { a.discovery.Run(ctx.Done(), nil) }, nil)
	for range workers {
		safego.Go(&running, "follow API services", func() {
			for a.next(ctx) {
			}
		}, nil)
	}
	<-ctx.Done()
	a.queue.ShutDown()
	running.Wait()
}

// first waits until there is an API service that pods are to serve.
func first(ctx context.Context, services cache.SharedIndexInformer) bool {
	found := make(chan struct{})
	once := sync.OnceFunc(func() { close(found) })
	look := func(o any) {
		if s, ok := o.(*v1.APIService); ok && s.Spec.Service != nil {
			once()
		}
	}
	handle, err := services.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(_, o any) { look(o) },
	})
	if err != nil {
		return false // the informer has stopped
	}
	defer func() { _ = services.RemoveEventHandler(handle) }()
	select {
	case <-found:
		return true
	case <-ctx.Done():
		return false
	}
}

// watch queues the API services that an event is about.
func (a *run) watch() error {
	// Not for its status, which is written here: a server that says something else each time
	// would be asked at once, and again.
	_, own := a.APIServices.Informer().AddEventHandler(each(func(s *v1.APIService) { a.queue.Add(s.Name) },
		func(a, b *v1.APIService) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) }))
	_, services := a.Config.Services.Informer().AddEventHandler(each(func(s *corev1.Service) { a.touch(s.Namespace, s.Name) }, never))
	_, endpoints := a.Slices.Informer().AddEventHandler(each(func(s *discoveryv1.EndpointSlice) {
		a.touch(s.Namespace, s.Labels[discoveryv1.LabelServiceName])
	}, never))
	return errors.Join(own, services, endpoints)
}

func never[T any](_, _ T) bool { return false }

// each calls f with every object that there is news of, but for changes that leave it
// the same.
func each[T any](f func(T), same func(a, b T) bool) cache.ResourceEventHandler {
	see := func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if v, ok := o.(T); ok {
			f(v)
		}
	}
	update := func(before, o any) {
		a, ok := before.(T)
		if b, is := o.(T); !ok || !is || !same(a, b) {
			see(o)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: update, DeleteFunc: see}
}

// touch queues the API services of a service.
func (a *run) touch(namespace, name string) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for key, s := range a.servers {
		if s.spec.Service.Namespace == namespace && s.spec.Service.Name == name {
			a.queue.Add(key)
		}
	}
}

// next works on what is next in the queue, and tells whether there will be more.
func (a *run) next(ctx context.Context) bool {
	name, ended := a.queue.Get()
	if ended {
		return false
	}
	defer a.queue.Done(name)
	again, err := a.sync(ctx, name)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not sync an API service; Berth retries", "name", name, "err", err)
		a.queue.AddRateLimited(name)
		return true
	}
	a.queue.Forget(name)
	if again {
		a.queue.AddAfter(name, refresh)
	}
	return true
}

// sync has a server answer for an API service and tells in its status how that
// goes. again says that it is to be looked at again though nothing happens.
func (a *run) sync(ctx context.Context, name string) (again bool, err error) {
	s, err := a.APIServices.Lister().Get(name)
	if apierrors.IsNotFound(err) || err == nil && s.Spec.Service == nil {
		a.forget(name)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	served := a.get(name)
	if served == nil || !equality.Semantic.DeepEqual(served.spec, s.Spec) {
		made, err := newServer(&a.Config, s)
		if err != nil {
			a.forget(name)
			return false, a.tell(ctx, s, because("InvalidSpec", "%w", err))
		}
		if !a.put(name, made) {
			return false, a.tell(ctx, s, because("TooMany",
				"a space's pods serve at most %d API services; delete others", MaxServices))
		}
		served = made
	}
	if !served.announced {
		a.discovery.AddAPIService(s, a.until(served.describe))
		served.announced = true
	}
	failed := a.check(ctx, served)
	if ctx.Err() != nil {
		return false, nil // which is why it failed
	}
	if was := served.available.Swap(failed == nil); !was && failed == nil {
		a.discovery.AddAPIService(s, a.until(served.describe))
	}
	return true, errors.Join(a.tell(ctx, s, failed), failed)
}

// until has a handler end with the run: upstream does not wait for the calls that it makes.
func (a *run) until(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(a.ended, cancel)()
		h(w, r.WithContext(ctx))
	})
}

// forget drops an API service, and gives its place to another.
func (a *run) forget(name string) {
	if !a.remove(name) {
		return
	}
	a.discovery.RemoveAPIService(name)
	gv := helper.APIServiceNameToGroupVersion(name)
	a.Discovery.RemoveGroupVersion(metav1.GroupVersion{Group: gv.Group, Version: gv.Version}) // which Load may have added
	waiting, err := a.APIServices.Lister().List(labels.Everything())
	if err != nil {
		return // a lister's cache has none
	}
	for _, s := range waiting {
		if s.Spec.Service != nil && a.get(s.Name) == nil {
			a.queue.Add(s.Name)
		}
	}
}

// tell writes the condition, if it is another.
func (a *run) tell(ctx context.Context, s *v1.APIService, failed error) error {
	updated := s.DeepCopy()
	helper.SetAPIServiceCondition(updated, condition(failed))
	if equality.Semantic.DeepEqual(updated.Status, s.Status) {
		return nil
	}
	if _, err := a.Client.APIServices().UpdateStatus(ctx, updated, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("tell whether API service %s is available: %w", s.Name, err)
	}
	return nil
}
