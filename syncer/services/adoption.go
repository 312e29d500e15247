// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/translate"
)

// releaseTimeout limits the deletion of the Services that were created.
const releaseTimeout = 15 * time.Second

// AdoptServices is [Addresses.ReserveService] for all Services of a space that does not run, and whose objects are
// about to be replaced by these. A Service adopts the space's host Service with its name, including its addresses and
// its load balancer. The results are in the order of vs; nil for a Service that needs no host Service.
//
// Until the space runs, the host Services work as before; then, the syncer removes from them what must not stay. If the
// restore fails and the space continues with its old objects, its Services take back their host Services. If
// AdoptServices fails, it deletes what it has created. What it creates selects no pods until the syncer has updated it.
func (a *Addresses) AdoptServices(ctx context.Context, space translate.Space, vs []*corev1.Service) ([]*corev1.Service, error) {
	account, err := a.as(space)
	if err != nil {
		return nil, err
	}
	adopting := &adoption{account: account, space: space, hosts: make([]*corev1.Service, len(vs))}
	if err := adopting.adoptAll(ctx, vs); err != nil {
		return nil, errors.Join(err, adopting.release(ctx))
	}
	return adopting.hosts, nil
}

// adoption assigns the host Services of a space to other Services of that space.
type adoption struct {
	account client.Client
	space   translate.Space
	hosts   []*corev1.Service
	created []*corev1.Service
}

// adoptionStep says how a Service gets its host Service.
type adoptionStep int

const (
	none   adoptionStep = iota // it needs none yet
	create                     // there is none, so that it is created
	adopt                      // the existing one has everything that it needs
)

// adoptAll decides for all Services before it changes anything. It creates new ones first, because the host may reject
// them for a quota.
func (a *adoption) adoptAll(ctx context.Context, vs []*corev1.Service) error {
	steps := make([]adoptionStep, len(vs))
	for i, v := range vs {
		var err error
		if steps[i], _, err = a.stepFor(ctx, v); err != nil {
			return err
		}
	}
	for _, now := range []adoptionStep{create, adopt} {
		for i, v := range vs {
			if steps[i] != now {
				continue
			}
			err := retry.OnError(retry.DefaultBackoff, raced, func() (err error) {
				a.hosts[i], err = a.hostServiceFor(ctx, v)
				return err
			})
			if err != nil {
				return fmt.Errorf("give service %s/%s its addresses: %w", v.Namespace, v.Name, err)
			}
		}
	}
	return nil
}

// hostServiceFor creates a Service's host Service, or makes the Service adopt the existing one. It decides again,
// because the host may have changed in the meantime.
func (a *adoption) hostServiceFor(ctx context.Context, v *corev1.Service) (*corev1.Service, error) {
	step, have, err := a.stepFor(ctx, v)
	if err != nil || step == none {
		return nil, err
	}
	want := a.space.Service(v)
	if step == create {
		if len(want.Spec.Selector) > 0 {
			want.Spec.Selector[annotationReserved] = "true" // selects no pods, because the running ones don't belong to the new objects
		}
		err := a.account.Create(ctx, want)
		if err == nil {
			a.created = append(a.created, want)
		}
		return want, err
	}
	adopted := pushed(have, want)
	// From now on, it has no recorded owner, and is otherwise unchanged: the store with which the space wakes decides
	// which Service owns it.
	delete(have.Annotations, translate.AnnotationUID)
	markReserved(have)
	return adopted, a.account.Update(ctx, have)
}

// stepFor returns how a Service can get its host Service, and the existing one with its name. It returns an error if
// the existing one can't be adopted.
func (a *adoption) stepFor(ctx context.Context, v *corev1.Service) (adoptionStep, *corev1.Service, error) {
	want, have := a.space.Service(v), &corev1.Service{}
	err := a.account.Get(ctx, client.ObjectKeyFromObject(want), have)
	if client.IgnoreNotFound(err) != nil {
		return none, nil, fmt.Errorf("read the host's service: %w", err)
	}
	if err != nil {
		return create, nil, nil
	}
	refuse := func(why error, remedy string) (adoptionStep, *corev1.Service, error) {
		return none, nil, fmt.Errorf("service %s/%s can't adopt the existing one, %s/%s on the host: %w; %s",
			v.Namespace, v.Name, have.Namespace, have.Name, why, remedy)
	}
	const remedy = "delete the existing service in the space first, or on the host if the space does not run or does not have it"
	if id, ours := translate.IdentityOf(have); !ours || id.Space != a.space.Name {
		return refuse(engine.ErrForeign, "delete the existing service on the host first")
	}
	headless := func(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone }
	families := len(want.Spec.IPFamilies) == 0 || len(have.Spec.IPFamilies) == 0 || slices.Equal(want.Spec.IPFamilies, have.Spec.IPFamilies)
	switch going := have.DeletionTimestamp != nil; {
	case headless(want) && (going || !headless(have) || !families):
		return none, nil, nil // without an address, it can wait until the syncer replaces it
	case going:
		return refuse(errors.New("the existing service is being deleted"), "try again when it is deleted")
	case headless(have) && !headless(want):
		return refuse(errors.New("the existing service is headless, which is immutable"), remedy)
	case !families:
		return refuse(errors.New("the existing service has addresses of other IP families"), remedy)
	case lacks(pushed(have, want)):
		return refuse(errors.New("the service needs an address or node ports that the existing service does not have"), remedy)
	}
	return adopt, have, nil
}

// pushed returns a copy of an existing host Service with what the wanted one asks for.
func pushed(have, want *corev1.Service) *corev1.Service {
	service := have.DeepCopy()
	translate.PushService(want, service)
	if !checksHealth(service) {
		service.Spec.HealthCheckNodePort = 0
	}
	return service
}

// lacks reports whether the host still has to allocate something for a Service.
func lacks(s *corev1.Service) bool {
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	automatic := s.Spec.Type == corev1.ServiceTypeNodePort ||
		balanced && (s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts)
	return s.Spec.ClusterIP == "" || automatic && slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort == 0 }) ||
		checksHealth(s) && s.Spec.HealthCheckNodePort == 0
}

// checksHealth reports whether a service has a node port for health checks.
func checksHealth(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// release deletes what was created, even if ctx has ended.
func (a *adoption) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	var errs []error
	for _, s := range a.created {
		err := a.account.Delete(ctx, s, client.Preconditions{UID: &s.UID})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete service %s/%s, which was created on the host: %w", s.Namespace, s.Name, err))
		}
	}
	return errors.Join(errs...)
}
