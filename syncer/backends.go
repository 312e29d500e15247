// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/berth-dev/berth/translate"
)

// Whoever is behind a door that all spaces share, an ingress's controller,
// reaches for backends from where it is itself: no wall of the space's is in
// between. So a service is on the host either with a door or with a way out of
// the space, see translate.LeadsOut, and never with both: what lets a service
// out takes its doors away first (shut), and what makes a door looks again
// afterwards (leadsOut).

// leadsOut reports whether a service leads, in the space or still on the host,
// to what need not be the space's own pods.
func (s *Syncer) leadsOut(key types.NamespacedName) bool {
	v, exists := inStore[*corev1.Service](s.informers.Core().V1().Services().Informer(), key)
	return exists && translate.LeadsOut(v) || s.hostLeadsOut(key)
}

func (s *Syncer) hostLeadsOut(key types.NamespacedName) bool {
	host, ok := cached[*corev1.Service](s.host, services, s.space.HostNamespace(), s.space.HostName(key.Namespace, key.Name, translate.LimitLabel))
	if !ok {
		return false
	}
	return host.Spec.Type == corev1.ServiceTypeExternalName ||
		slices.ContainsFunc(s.host.Slices(host), func(slice *discoveryv1.EndpointSlice) bool {
			_, written := translate.IdentityOf(slice)
			return written
		})
}

// shut takes away the doors that lead to a service, which is about to lead
// out of the space.
func (s *Syncer) shut(ctx context.Context, v *corev1.Service) error {
	if s.hostLeadsOut(client.ObjectKeyFromObject(v)) {
		return nil
	}
	name := s.space.HostName(v.Namespace, v.Name, translate.LimitLabel)
	for kind, all := range map[string]client.ObjectList{ingresses: &networkingv1.IngressList{}, httpRoutes: &gatewayv1.HTTPRouteList{}} {
		if !s.host.sync.On(kind) {
			continue
		}
		// Past the watch: it may not know yet of the latest.
		if err := s.host.reader.List(ctx, all, client.InNamespace(s.space.HostNamespace())); err != nil {
			return fmt.Errorf("list the space's %s on the host: %w", kind, err)
		}
		err := meta.EachListItem(all, func(item runtime.Object) error {
			door, ok := item.(client.Object)
			if !ok {
				return nil
			}
			id, ours := translate.IdentityOf(door)
			if !ours || id.Space != s.space.Name || !slices.Contains(servicesOf(door), name) {
				return nil
			}
			return s.withdraw(ctx, door)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// withdraw deletes the object of a UID, if it is there still.
func (s *Syncer) withdraw(ctx context.Context, host client.Object) error {
	uid := host.GetUID()
	return client.IgnoreNotFound(s.writer.Delete(ctx, host, client.Preconditions{UID: &uid}))
}
