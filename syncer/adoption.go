// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// releasePatience is how long the host may take to have back what was made.
const releasePatience = 15 * time.Second

// InheritServices is [Host.ReserveService] for all services of a space that does
// not run, and whose objects are about to be these instead. A service of the host
// passes to the one of its name, with its addresses and its load balancer.
// The results are in the order of vs; nil for one that needs nothing of the host.
//
// Until the space takes them in, those that are there serve as before: what they
// have to lose goes when the space's syncer finds the others. If the space comes
// back as it was, its services take back what passed. If InheritServices fails, what
// it made is given back. What is made leads to no pod until the syncer has it.
func (h *Host) InheritServices(ctx context.Context, space translate.Space, vs []*corev1.Service) ([]*corev1.Service, error) {
	if !h.sync.On(services) {
		return make([]*corev1.Service, len(vs)), nil
	}
	account, err := h.as(space)
	if err != nil {
		return nil, err
	}
	e := &estate{account: account, space: space, hosts: make([]*corev1.Service, len(vs))}
	if err := e.pass(ctx, vs); err != nil {
		return nil, errors.Join(err, e.release(ctx))
	}
	return e.hosts, nil
}

// estate is what services of a space leave to others.
type estate struct {
	account client.Client
	space   translate.Space
	hosts   []*corev1.Service
	made    []*corev1.Service
}

// share is how a service comes by its host object.
type share int

const (
	nothing share = iota // it needs none yet
	anew                 // there is none
	whole                // it needs no more than the one that is there has
)

// pass decides for all services before it changes anything. What the host may
// refuse, for a quota, comes first.
func (e *estate) pass(ctx context.Context, vs []*corev1.Service) error {
	shares := make([]share, len(vs))
	for i, v := range vs {
		var err error
		if shares[i], _, err = e.shareOf(ctx, v); err != nil {
			return err
		}
	}
	for _, now := range []share{anew, whole} {
		for i, v := range vs {
			if shares[i] != now {
				continue
			}
			err := retry.OnError(retry.DefaultBackoff, raced, func() (err error) {
				e.hosts[i], err = e.take(ctx, v)
				return err
			})
			if err != nil {
				return fmt.Errorf("give service %s/%s its addresses: %w", v.Namespace, v.Name, err)
			}
		}
	}
	return nil
}

// take gives a service its share, whatever that is by now.
func (e *estate) take(ctx context.Context, v *corev1.Service) (*corev1.Service, error) {
	share, have, err := e.shareOf(ctx, v)
	if err != nil || share == nothing {
		return nil, err
	}
	want := e.space.Service(v)
	if share == anew {
		if len(want.Spec.Selector) > 0 {
			want.Spec.Selector[annotationReserved] = "true" // no pod: those that run are not for who comes
		}
		err := e.account.Create(ctx, want)
		if err == nil {
			e.made = append(e.made, want)
		}
		return want, err
	}
	becomes := become(have, want)
	// It is nobody's from now on, and stays what it is: it is for the store that the
	// space wakes with to say whose.
	delete(have.Annotations, translate.AnnotationUID)
	markReserved(have)
	return becomes, e.account.Update(ctx, have)
}

// shareOf is how a service can come by its host object, and which one is there
// under its name. An error says that it can't while that is there.
func (e *estate) shareOf(ctx context.Context, v *corev1.Service) (share, *corev1.Service, error) {
	want, have := e.space.Service(v), &corev1.Service{}
	err := e.account.Get(ctx, client.ObjectKeyFromObject(want), have)
	if client.IgnoreNotFound(err) != nil {
		return nothing, nil, fmt.Errorf("read the host's service: %w", err)
	}
	if err != nil {
		return anew, nil, nil
	}
	refuse := func(why error, remedy string) (share, *corev1.Service, error) {
		return nothing, nil, fmt.Errorf("service %s/%s can't have the place of the one that is there, %s/%s on the host: %w; %s",
			v.Namespace, v.Name, have.Namespace, have.Name, why, remedy)
	}
	const remedy = "delete that in the space first, or on the host if the space does not run or has none of that name"
	if id, ours := translate.IdentityOf(have); !ours || id.Space != e.space.Name {
		return refuse(errForeign, "remove it from the host first")
	}
	none := func(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone }
	families := len(want.Spec.IPFamilies) == 0 || len(have.Spec.IPFamilies) == 0 || slices.Equal(want.Spec.IPFamilies, have.Spec.IPFamilies)
	switch going := have.DeletionTimestamp != nil; {
	case none(want) && (going || !none(have) || !families):
		return nothing, nil, nil // without an address it can wait: the syncer makes it when that has gone
	case going:
		return refuse(errors.New("that is being deleted"), "try again when it has gone")
	case none(have) && !none(want):
		return refuse(errors.New("that is headless, which is for life"), remedy)
	case !families:
		return refuse(errors.New("that has addresses of other IP families"), remedy)
	case lacks(become(have, want)):
		return refuse(errors.New("it needs an address or node ports that that does not have"), remedy)
	}
	return whole, have, nil
}

// become is what a host's service is once it is as wanted.
func become(have, want *corev1.Service) *corev1.Service {
	becomes := have.DeepCopy()
	translate.PushService(want, becomes)
	if !checksHealth(becomes) {
		becomes.Spec.HealthCheckNodePort = 0
	}
	return becomes
}

// lacks reports whether a host's service has yet to be given something.
func lacks(s *corev1.Service) bool {
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	automatic := s.Spec.Type == corev1.ServiceTypeNodePort ||
		balanced && (s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts)
	return s.Spec.ClusterIP == "" || automatic && slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort == 0 }) ||
		checksHealth(s) && s.Spec.HealthCheckNodePort == 0
}

// checksHealth reports whether a service has a node port for its health.
func checksHealth(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// release gives back what was made, though who asked for it may have gone.
func (e *estate) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releasePatience)
	defer cancel()
	var errs []error
	for _, s := range e.made {
		err := e.account.Delete(ctx, s, client.Preconditions{UID: &s.UID})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("give back service %s/%s on the host: %w", s.Namespace, s.Name, err))
		}
	}
	return errors.Join(errs...)
}
