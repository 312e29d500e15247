// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// ReserveService creates or updates the host object of a service that the space is about to store, and returns it. The
// host allocates cluster IPs and node ports, and a service must have them from the start. A v without UID is new, and
// the caller has checked that the space has no service of that name. current reads the space's service of that name: a
// host object is left over only if its service is gone after the host object was read. If the space does not store the
// service, a reservation is deleted after a minute, and an update is reverted.
//
// The result is nil if the host object belongs to another service. The error is AlreadyExists if v is new and the space
// has a service of that name.
func (a *Addresses) ReserveService(ctx context.Context, space translate.Space, v *corev1.Service, current func(context.Context) (*corev1.Service, error)) (*corev1.Service, error) {
	writer, err := a.as(space)
	if err != nil {
		return nil, err
	}
	var reserved *corev1.Service
	err = retry.OnError(retry.DefaultBackoff, raced, func() (err error) {
		reserved, err = reserveService(ctx, writer, space, v, current)
		return err
	})
	if errors.Is(err, errThere) {
		return nil, apierrors.NewAlreadyExists(corev1.Resource(resources.Services), v.Name)
	}
	return reserved, err
}

// raced reports whether an object was marked, changed, or deleted after it was read: when a name is reused, the syncer
// may write the same object.
func raced(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// errThere means that a service is not new: the space has one with its name.
var errThere = errors.New("the space has it already")

func reserveService(ctx context.Context, account *Account, space translate.Space, v *corev1.Service, current func(context.Context) (*corev1.Service, error)) (*corev1.Service, error) {
	want := space.Service(v)
	account.Hold(ctx, hostcache.Object{Resource: resources.Services, NamespacedName: client.ObjectKeyFromObject(want)}, hostcache.Version(v.ResourceVersion))
	have := &corev1.Service{}
	err := account.Get(ctx, client.ObjectKeyFromObject(want), have)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read the host's service: %w", err)
	}
	if err != nil {
		return want, account.Create(ctx, want)
	}
	id, ours := translate.IdentityOf(have)
	switch {
	case !ours || id.Space != space.Name:
		return nil, engine.ErrForeign
	case id.UID == v.UID || id.UID == "":
		changed := translate.PushService(want, have)
		if v.UID == "" {
			markReserved(have)
			changed = true
		}
		if changed {
			err = account.Update(ctx, have)
		}
		return have, err
	case v.UID == "": // left over from a deleted one, unless it was created in the meantime
		switch now, err := current(ctx); {
		case err == nil && now.UID == id.UID:
			return nil, errThere
		case client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("read the space's service: %w", err)
		}
		if err := account.Delete(ctx, have, client.Preconditions{UID: &have.UID, ResourceVersion: &have.ResourceVersion}); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		return want, account.Create(ctx, want)
	default:
		return nil, nil
	}
}

// markReserved changes the object in any case, because the syncer may be about to mark it as the object of an earlier
// service of that name, see engine.Resource.
func markReserved(host *corev1.Service) {
	metav1.SetMetaDataAnnotation(&host.ObjectMeta, annotationReserved, rand.Text())
}

// annotationReserved is on a host object that was reserved more than once, until it has an owner.
const annotationReserved = translate.Domain + "/reserved"

// rightsTimeout is how long the host's authorizer may take until the role of the space's account is in effect.
const rightsTimeout = 15 * time.Second

// ReserveAPI creates the host object of the space's own Service default/kubernetes before the space starts, and returns
// its cluster IP: the address at which the space's pods look for their API. It is the first request with the space's
// account, and waits until rights that were just granted are in effect.
func (a *Addresses) ReserveAPI(ctx context.Context, space translate.Space) (clusterIP string, err error) {
	end := time.Now().Add(rightsTimeout)
	_ = wait.PollUntilContextCancel(ctx, engine.FirstRetry, true, func(ctx context.Context) (done bool, _ error) {
		clusterIP, err = a.reserveAPI(ctx, space)
		return !apierrors.IsForbidden(err) || time.Now().After(end), nil
	})
	return clusterIP, err
}

func (a *Addresses) reserveAPI(ctx context.Context, space translate.Space) (clusterIP string, err error) {
	v := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes"},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(6443)}},
		},
	}
	have := &corev1.Service{}
	err = a.host.Reader.Get(ctx, client.ObjectKeyFromObject(space.Service(v)), have)
	if err != nil {
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("read the host's service: %w", err)
		}
		have, err = a.ReserveService(ctx, space, v, func(context.Context) (*corev1.Service, error) {
			return nil, apierrors.NewNotFound(corev1.Resource(resources.Services), v.Name) // there is no running space to ask
		})
		if err != nil {
			return "", fmt.Errorf("reserve the address of the space's API: %w", err)
		}
	}
	if id, ours := translate.IdentityOf(have); !ours || id.Space != space.Name {
		return "", fmt.Errorf("reserve the address of the space's API: %w", engine.ErrForeign)
	}
	return have.Spec.ClusterIP, nil
}

// ServiceRange returns the host's range of cluster IPs, in CIDR notation. Spaces use the same range, because their
// services have addresses of the host.
func (a *Addresses) ServiceRange(ctx context.Context) (string, error) {
	cidr := &networkingv1.ServiceCIDR{}
	err := a.host.Reader.Get(ctx, client.ObjectKey{Name: "kubernetes"}, cidr)
	if err != nil {
		return "", fmt.Errorf("read the host's ServiceCIDR (Kubernetes 1.33 or later is needed): %w", err)
	}
	return cidr.Spec.CIDRs[0], nil
}
