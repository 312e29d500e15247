// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// Syncer syncs services, and what exposes them.
type Syncer struct {
	*engine.Engine
	guarded  []guarded // declared before the syncer runs
	backed   []backed  // the same
	withdraw func(context.Context) error
	outward  *rate.Limiter // of services that are about to route out of the space
}

const (
	// outwardPerSecond and outwardAtOnce limit how often the host's objects of a space are listed because a service is about to route out.
	outwardPerSecond = 5
	outwardAtOnce    = 100
)

// New returns the syncer of the services of an engine's space. withdraw, if it is not nil, takes from the host what no engine syncs any more,
// and what could lead to a service that is about to route out of the space.
func New(e *engine.Engine, withdraw func(context.Context) error) *Syncer {
	return &Syncer{Engine: e, withdraw: withdraw, outward: rate.NewLimiter(outwardPerSecond, outwardAtOnce)}
}

// Declarations returns the functions that declare this package's resources to the engine.
func (s *Syncer) Declarations() map[string]func() error {
	return map[string]func() error{
		resources.Services: s.syncServices, resources.EndpointSlices: s.syncEndpointSlices,
		resources.Ingresses: s.syncIngresses, resources.Gateways: s.syncGateways, resources.HTTPRoutes: s.syncHTTPRoutes,
	}
}

// slicesOf is the resource of keys that stand for the endpoint slices of a service in the space. A handler of service
// events must not look the slices up, because it runs in the host's watch, which all spaces share.
const slicesOf = "endpoint slices of a service"

func (s *Syncer) syncServices() error {
	written := s.Informers.Discovery().V1().EndpointSlices().Informer()
	err := written.AddIndexers(cache.Indexers{hostcache.IndexService: func(obj any) ([]string, error) {
		if v, ok := obj.(*discoveryv1.EndpointSlice); ok {
			return hostcache.SliceService(v), nil
		}
		return nil, nil
	}})
	if err != nil {
		return err
	}
	s.Work[slicesOf] = func(ctx context.Context, service types.NamespacedName) (_ time.Duration, err error) {
		s.Compute(ctx, func() {
			var keys []string
			keys, err = written.GetIndexer().IndexKeys(hostcache.IndexService, service.String())
			for _, key := range keys {
				if name, err := cache.ParseObjectName(key); err == nil {
					s.Queue.Add(engine.Key{Resource: resources.EndpointSlices, NamespacedName: types.NamespacedName(name)})
				}
			}
		})
		return 0, err
	}
	s.Work[backedBy] = s.release
	enqueueSlices := func(service types.NamespacedName, enqueue func(engine.Key)) {
		enqueue(engine.Key{Resource: slicesOf, NamespacedName: service})
	}
	engine.Add(&engine.Resource[*corev1.Service]{
		Engine: s.Engine, Name: resources.Services, NameLimit: translate.LimitLabel,
		Virtual:       s.Informers.Core().V1().Services().Informer(),
		MakesRequests: true,
		ToHost: func(ctx context.Context, v *corev1.Service) (*corev1.Service, bool, error) {
			err := engine.Forbid(translate.CheckService(&v.Spec))
			if err == nil && v.Spec.Type == corev1.ServiceTypeExternalName {
				err = s.withdrawExposures(ctx, v)
			}
			return s.Space.Service(v), true, err
		},
		UpdateHost: translate.PushService,
		// Both sides have the same address, and an address is immutable.
		NeedsRecreate: func(want, have *corev1.Service) bool {
			return want.Spec.ClusterIP != "" && have.Spec.ClusterIP != "" && want.Spec.ClusterIP != have.Spec.ClusterIP
		},
		SyncStatus: s.syncServiceStatus,
		Relabel: func(ctx context.Context, v, host *corev1.Service) error {
			have := host.DeepCopy()
			if !s.Space.PushServiceSelector(v, have) {
				return nil
			}
			return s.HostAPI.Update(ctx, have)
		},
		OnHostEvent: func(host *corev1.Service, enqueue func(engine.Key)) {
			if id, ok := translate.IdentityOf(host); ok && translate.TakesEndpoints(host) {
				enqueueSlices(types.NamespacedName{Namespace: id.Namespace, Name: id.Name}, enqueue)
			}
			enqueueBacked(host, enqueue)
		},
	}, func(v *corev1.Service, enqueue func(engine.Key)) {
		// The service's selector decides who writes its endpoints.
		enqueueSlices(client.ObjectKeyFromObject(v), enqueue)
	})
	return nil
}

func (s *Syncer) syncServiceStatus(ctx context.Context, v, host *corev1.Service) (time.Duration, error) {
	status := s.Space.PullServiceStatus(v, host, s.Host.IsNode)
	if equality.Semantic.DeepEqual(status.LoadBalancer, v.Status.LoadBalancer) {
		return 0, nil
	}
	out := v.DeepCopy()
	out.Status.LoadBalancer = status.LoadBalancer
	return 0, s.VirtualAPI.Status().Update(ctx, out)
}

// syncEndpointSlices syncs the endpoints of services without a selector. The host's own controller creates all others.
func (s *Syncer) syncEndpointSlices() error {
	lister := s.Informers.Core().V1().Services().Lister()
	engine.Add(&engine.Resource[*discoveryv1.EndpointSlice]{
		Engine: s.Engine, Name: resources.EndpointSlices, NameLimit: translate.LimitSubdomain,
		Virtual:       s.Informers.Discovery().V1().EndpointSlices().Informer(),
		MakesRequests: true,
		ToHost: func(ctx context.Context, v *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, bool, error) {
			service, err := lister.Services(v.Namespace).Get(v.Labels[discoveryv1.LabelServiceName])
			if err != nil || !translate.HasOwnEndpoints(service) {
				return nil, false, client.IgnoreNotFound(err)
			}
			return s.Space.EndpointSlice(v), true, s.withdrawExposures(ctx, service)
		},
		UpdateHost: translate.PushEndpointSlice,
		ForCreate:  translate.SliceForCreate, // the event of the create triggers another sync
		NeedsRecreate: func(want, have *discoveryv1.EndpointSlice) bool {
			return want.Labels[discoveryv1.LabelServiceName] != have.Labels[discoveryv1.LabelServiceName]
		},
		MayUpdate: s.mayFill,
		OnHostEvent: func(host *discoveryv1.EndpointSlice, enqueue func(engine.Key)) {
			service, ok := hostcache.Get[*corev1.Service](s.Host, resources.Services, host.Namespace, host.Labels[discoveryv1.LabelServiceName])
			if _, written := translate.IdentityOf(host); written && ok {
				enqueueBacked(service, enqueue)
			}
		},
	}, nil)
	return nil
}
