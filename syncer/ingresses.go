// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// syncIngresses takes ingresses down that name a class of the host's. Those of
// another class are for a controller that the tenant runs itself.
func (s *Syncer) syncIngresses() error {
	informer := s.informers.Networking().V1().Ingresses().Informer()
	err := informer.AddIndexers(cache.Indexers{indexSecrets: func(obj any) (names []string, _ error) {
		if v, ok := obj.(*networkingv1.Ingress); ok {
			for _, ref := range translate.IngressSecrets(v) {
				names = append(names, ref.String())
			}
		}
		return names, nil
	}, indexServices: func(obj any) (names []string, _ error) {
		if v, ok := obj.(*networkingv1.Ingress); ok {
			for _, name := range translate.IngressServices(v) {
				names = append(names, v.Namespace+"/"+name)
			}
		}
		return names, nil
	}})
	if err != nil {
		return err
	}
	add(&kind[*networkingv1.Ingress]{
		Syncer: s, name: ingresses, limit: translate.LimitSubdomain, strict: true,
		fresh:   func() *networkingv1.Ingress { return &networkingv1.Ingress{} },
		virtual: informer,
		down: func(_ context.Context, v *networkingv1.Ingress) (*networkingv1.Ingress, bool, error) {
			wanted, err := s.ingressAllowed(v)
			if err != nil {
				return nil, false, err
			}
			return s.space.Ingress(v, s.host.annotations), wanted, nil
		},
		push: func(want, have *networkingv1.Ingress) bool {
			return translate.PushIngress(want, have, s.host.annotations)
		},
		pull: s.ingressPull,
	}, func(v *networkingv1.Ingress, enqueue func(Key)) {
		s.refer(secrets, translate.IngressSecrets(v), enqueue)
	})
	// Whether an ingress may be depends on its services.
	s.fromSpace(s.informers.Core().V1().Services().Informer(), func(v client.Object, enqueue func(Key)) {
		keys, err := informer.GetIndexer().IndexKeys(indexServices, client.ObjectKeyFromObject(v).String())
		if err != nil {
			return
		}
		for _, key := range keys {
			namespace, name, _ := strings.Cut(key, "/")
			enqueue(Key{Kind: ingresses, NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
		}
	})
	return nil
}

// indexServices finds a space's ingresses by the services that they lead to, as
// namespace/name.
const indexServices = "berth.dev/services"

// ingressAllowed reports whether the host is to serve v at all, and what stands
// against it.
func (s *Syncer) ingressAllowed(v *networkingv1.Ingress) (wanted bool, err error) {
	path := field.NewPath("spec", "ingressClassName")
	if v.Spec.IngressClassName == nil {
		return false, forbids(field.ErrorList{field.Forbidden(path, "the host's default is not for spaces; name a class, see 'kubectl get ingressclasses'")})
	}
	class := *v.Spec.IngressClassName
	if _, ok := shown[*networkingv1.IngressClass](s, ingressClasses, class); !ok {
		own, exists := inStore[*networkingv1.IngressClass](s.informers.Networking().V1().IngressClasses().Informer(), types.NamespacedName{Name: class})
		if exists && own.Labels[translate.LabelManagedBy] != translate.ManagedBy {
			return false, nil
		}
		return false, forbids(field.ErrorList{field.Forbidden(path, fmt.Sprintf("there is no class %q for spaces; see 'kubectl get ingressclasses'", class))})
	}
	errs := translate.CheckIngress(&v.Spec)
	if len(errs) > 0 {
		return true, forbids(errs) // it may hold more host names than are to be looked for
	}
	own := s.host.ownHosts(s.space, v)
	for _, host := range translate.IngressHosts(v) {
		if s.host.claimed(host, s.space, own) {
			errs = append(errs, field.Forbidden(field.NewPath("spec").Child("rules").Key(host), "the host name is in use outside of this space; choose another"))
		}
	}
	return true, forbids(append(errs, s.wayOut(v)...))
}

// wayOut refuses backends by which the host's controller would be led out of the
// space.
func (s *Syncer) wayOut(v *networkingv1.Ingress) (errs field.ErrorList) {
	for _, name := range translate.IngressServices(v) {
		if s.leadsOut(types.NamespacedName{Namespace: v.Namespace, Name: name}) {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "rules").Child("http", "paths", "backend", "service").Key(name),
				"it is of type ExternalName or has no selector, and may lead to what is not the space's; name a service that selects pods"))
		}
	}
	return errs
}

func (s *Syncer) ingressPull(ctx context.Context, v, host *networkingv1.Ingress) (time.Duration, error) {
	if len(s.wayOut(v)) > 0 { // since it was allowed
		return 0, s.withdraw(ctx, host) // its event brings us back, and says why
	}
	status := translate.PullIngressStatus(host)
	if equality.Semantic.DeepEqual(status, v.Status) {
		return 0, nil
	}
	out := v.DeepCopy()
	out.Status = status
	return 0, s.virtualAPI.Status().Update(ctx, out)
}

// indexHosts finds the host's ingresses, spaces' or not, by the host names that
// they claim.
const indexHosts = "berth.dev/hosts"

func indexClaims(obj any) ([]string, error) {
	i, ok := obj.(*networkingv1.Ingress)
	if !ok {
		return nil, nil
	}
	hosts := translate.IngressHosts(i)
	if spaceIn(i.Namespace) != "" {
		// Whoever wrote it: this runs under the index's lock, which all spaces wait
		// for. The host's admins' own claims all count.
		hosts = hosts[:min(len(hosts), translate.MaxIngressHosts)]
	}
	return hosts, nil
}

// ownHosts are the host names that an ingress has on the host.
type ownHosts struct {
	hosts []string // sorted
	since *metav1.Time
}

func (h *Host) ownHosts(space translate.Space, v *networkingv1.Ingress) ownHosts {
	own, ok := cached[*networkingv1.Ingress](h, ingresses, space.HostNamespace(), space.HostName(v.Namespace, v.Name, translate.LimitSubdomain))
	if !ok {
		return ownHosts{}
	}
	return ownHosts{translate.IngressHosts(own), &own.CreationTimestamp}
}

// of is since when a host name is claimed, nil if it is not.
func (c ownHosts) of(name string) *metav1.Time {
	if _, has := slices.BinarySearch(c.hosts, name); !has {
		return nil
	}
	return c.since
}

// claimed reports whether an ingress that is not the space's has a host name:
// who was first keeps it. Of two that came in one moment, neither looks like the
// first; both give way, and try again at their own time.
func (h *Host) claimed(name string, space translate.Space, own ownHosts) bool {
	since := own.of(name)
	for _, claim := range translate.HostClaims(name) {
		for _, other := range found[*networkingv1.Ingress](h, ingresses, indexHosts, claim) {
			if other.Namespace == space.HostNamespace() || other.DeletionTimestamp != nil {
				continue
			}
			if since == nil || !since.Before(&other.CreationTimestamp) {
				return true
			}
		}
	}
	return false
}

// claimsOnly is what syncers must know of an ingress that is no space's.
func claimsOnly(i *networkingv1.Ingress) *networkingv1.Ingress {
	out := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{
		Namespace: i.Namespace, Name: i.Name, UID: i.UID, ResourceVersion: i.ResourceVersion,
		CreationTimestamp: i.CreationTimestamp, DeletionTimestamp: i.DeletionTimestamp,
	}}
	for _, host := range translate.IngressHosts(i) {
		if host != "" {
			out.Spec.Rules = append(out.Spec.Rules, networkingv1.IngressRule{Host: host})
		}
	}
	return out
}
