// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// The controllers that serve exposures for all spaces, such as an ingress controller, reach backends from their own
// pods, so the space's network policies don't apply. Therefore, a Service on the host has either an exposure, or a
// route out of the space (see translate.LeadsOut), and never both: before a Service may route out, its exposures are
// withdrawn, and after an exposure is created, LeadsOut is checked again.

// LeadsOutReason says why an object may not name a service that routes out of the space, and what to do.
const LeadsOutReason = "the service has type ExternalName or no selector, so it could lead to endpoints outside of the space; use a service that selects pods"

// LeadsOut reports whether a service, in the space or still on the host, routes to something other than the space's own
// pods.
func (s *Syncer) LeadsOut(key types.NamespacedName) bool {
	v, exists := engine.Stored[*corev1.Service](s.Informers.Core().V1().Services().Informer(), key)
	return exists && translate.LeadsOut(v) || s.hostLeadsOut(key)
}

func (s *Syncer) hostLeadsOut(key types.NamespacedName) bool {
	host, ok := hostcache.Get[*corev1.Service](s.Host, resources.Services, s.Space.HostNamespace(), s.Space.HostName(key.Namespace, key.Name, translate.LimitLabel))
	if !ok {
		return false
	}
	return host.Spec.Type == corev1.ServiceTypeExternalName ||
		slices.ContainsFunc(s.Host.Slices(host), func(slice *discoveryv1.EndpointSlice) bool {
			_, written := translate.IdentityOf(slice)
			return written
		})
}

// guarded are the host objects of one resource that route to services.
type guarded struct {
	resource string
	kind     schema.GroupVersionKind
	new      func() client.Object
	// services returns the names of the services on the host that a host object routes to.
	services func(host client.Object) []string
}

// Guard withdraws the host objects of a custom resource that name a service which is about to route out of the space, and syncs those of
// the space again when a service changes. Its informer must have the index [IndexServices].
func (s *Syncer) Guard(k *engine.Resource[*unstructured.Unstructured], services func(client.Object) []string, newObject func() *unstructured.Unstructured) {
	s.guarded = append(s.guarded, guarded{k.Name, newObject().GroupVersionKind(), func() client.Object { return newObject() }, services})
	followServices(s, k)
}

// backed are the space's objects of one resource that name services.
type backed struct {
	resource string
	virtual  cache.SharedIndexInformer // with the index IndexServices
}

// followServices syncs again the objects of a resource whose services changed, in the space or on the host.
func followServices[T client.Object](s *Syncer, k *engine.Resource[T]) {
	enqueueByIndex(k, s.Informers.Core().V1().Services().Informer(), IndexServices)
	s.backed = append(s.backed, backed{k.Name, k.Virtual})
}

// backedBy is the resource of keys that stand for what names a service of the space. It is for handlers that must not look that up, see
// [slicesOf].
const backedBy = "backed by a service"

// release syncs again what names a service that doesn't lead out of the space any more. When the service changed in the space, it still did
// on the host, so that its exposures were refused.
func (s *Syncer) release(ctx context.Context, service types.NamespacedName) (time.Duration, error) {
	s.Compute(ctx, func() {
		if s.LeadsOut(service) {
			return // what names it was withdrawn
		}
		for _, b := range s.backed {
			enqueueIndexed(b.resource, b.virtual, IndexServices, service, s.Queue.Add)
		}
	})
	return 0, nil
}

// enqueueBacked has [Syncer.release] process a service that changed on the host.
func enqueueBacked(host client.Object, enqueue func(engine.Key)) {
	if key, ok := engine.KeyOf(backedBy, host); ok {
		enqueue(key)
	}
}

// withdrawExposures deletes what routes to a service that is about to route out of the space.
func (s *Syncer) withdrawExposures(ctx context.Context, v *corev1.Service) error {
	if s.hostLeadsOut(client.ObjectKeyFromObject(v)) {
		return nil
	}
	now := s.Clock.Now()
	if turn := s.outward.ReserveN(now, 1); turn.DelayFrom(now) > 0 {
		after := turn.DelayFrom(now)
		turn.CancelAt(now)
		return engine.Later(after, "too many services of the space are about to route out of it")
	}
	if s.withdraw != nil {
		if err := s.withdraw(ctx); err != nil {
			return fmt.Errorf("take back what may lead to a service: %v", err) //nolint:errorlint // it says nothing about the service, and would be explained to the tenant
		}
	}
	all := slices.Clone(s.guarded)
	for _, r := range resources.Exposures() {
		if r.Exposure.Services != nil && s.Sync.On(r.Name) {
			all = append(all, guarded{r.Name, r.GVK(), r.New, r.Exposure.Services})
		}
	}
	name := s.Space.HostName(v.Namespace, v.Name, translate.LimitLabel)
	for _, g := range all {
		if err := s.withdrawAll(ctx, g, name); err != nil {
			return err
		}
	}
	return nil
}

// withdrawAll deletes the objects of one resource that route to a service. It lists them from the API, because the watch may not have
// the latest ones. It reads only those that are not in the watch: a space may have megabytes of them, and many endpoint
// slices that trigger this.
func (s *Syncer) withdrawAll(ctx context.Context, g guarded, service string) error {
	all := hostcache.MetadataList(g.kind)
	if err := s.Host.Reader.List(ctx, all, client.InNamespace(s.Space.HostNamespace())); err != nil {
		return fmt.Errorf("list the space's %s on the host: %w", g.resource, err)
	}
	var held []string
	for i := range all.Items {
		listed := &all.Items[i]
		if id, ours := translate.IdentityOf(listed); !ours || id.Space != s.Space.Name {
			continue
		}
		host, ok := hostcache.Get[client.Object](s.Host, g.resource, listed.Namespace, listed.Name)
		if !ok || !hostcache.Same(host, listed) {
			host = g.new()
			if err := s.HostAPI.Get(ctx, client.ObjectKeyFromObject(listed), host); apierrors.IsNotFound(err) {
				continue
			} else if err != nil {
				return fmt.Errorf("read one of the space's %s on the host: %w", g.resource, err)
			}
		}
		if !slices.Contains(g.services(host), service) {
			continue
		}
		if err := s.Withdraw(ctx, host); err != nil {
			return err
		}
		if len(listed.Finalizers) > 0 { // a controller may serve it until it removes its own
			held = append(held, listed.Name)
		}
	}
	if len(held) > 0 {
		return fmt.Errorf("the host has not released %s %s: %w", g.resource, strings.Join(held, ", "), engine.ErrUnsettled)
	}
	return nil
}

// Withdraw deletes an object with its UID as precondition, if it still exists.
func (s *Syncer) Withdraw(ctx context.Context, host client.Object) error {
	uid := host.GetUID()
	return client.IgnoreNotFound(s.HostAPI.Delete(ctx, host, client.Preconditions{UID: &uid}))
}

// mayFill reports, with the API, whether the host service of a slice may have a tenant's endpoints. The version of the
// slice must have been read before that.
func (s *Syncer) mayFill(ctx context.Context, slice *discoveryv1.EndpointSlice) (bool, error) {
	service := &corev1.Service{}
	err := s.HostAPI.Get(ctx, client.ObjectKey{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}, service)
	return err == nil && translate.TakesEndpoints(service), client.IgnoreNotFound(err)
}
