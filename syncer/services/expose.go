// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// Endpoints that a tenant writes may have any address, for example one of the host's network. A node port or a load
// balancer must never forward requests there (CVE-2021-25740), not even for a moment. Three rules, which the host
// itself enforces, guarantee that. They hold even if a syncer crashes, a request arrives late, or two processes sync
// the same space.
//
// - A slice is created without addresses. It gets them by an update of exactly that version, after the service was read
// from the host and had no selector ([Syncer.mayFill]).
// - A service without a selector first gets one. Only then are its slices listed and deleted, and only after that is it
// exposed, by an update of exactly that version ([Account.updateExposed]).
// - A slice never changes its service; for another service, it is recreated.
//
// So a slice that could get addresses while its service is being exposed existed before the service had a selector, and
// is among those that are deleted. The update that adds the addresses comes before that, or fails.

// createExposed creates a service that is exposed from the start. In the meantime, the space must not create or delete
// other services, because a service of the same name that was created and deleted would leave its slices.
func (a *Account) createExposed(ctx context.Context, service *corev1.Service, opts ...client.CreateOption) error {
	a.exposing.Lock()
	defer a.exposing.Unlock()
	if err := a.deleteWritten(ctx, service); err != nil {
		return err
	}
	return a.Writer.Create(ctx, service, opts...)
}

// updateExposed updates a service that is exposed afterwards.
func (a *Account) updateExposed(ctx context.Context, service *corev1.Service, opts ...client.UpdateOption) error {
	live := &corev1.Service{}
	if err := a.Get(ctx, client.ObjectKeyFromObject(service), live); err != nil {
		return err
	}
	if live.UID != service.UID || live.ResourceVersion != service.ResourceVersion {
		return apierrors.NewConflict(corev1.Resource(resources.Services), service.Name, errors.New("the service changed in the meantime"))
	}
	if translate.Exposed(&live.Spec) {
		return a.Writer.Update(ctx, service, opts...)
	}
	if len(live.Spec.Selector) == 0 {
		closed := translate.Unexposed(service)
		if err := a.Writer.Update(ctx, closed, opts...); err != nil {
			return fmt.Errorf("give the service a selector before it is exposed: %w", err)
		}
		want := service.DeepCopy()
		closed.DeepCopyInto(service)
		translate.PushService(want, service)
	}
	if err := a.deleteWritten(ctx, service); err != nil {
		return err
	}
	return a.Writer.Update(ctx, service, opts...)
}

// deleteWritten deletes the slices of a host service that a tenant wrote. It lists them from the API, because the watch
// may be behind.
func (a *Account) deleteWritten(ctx context.Context, service *corev1.Service) error {
	all := hostcache.MetadataList(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"))
	err := a.Host.Reader.List(ctx, all, client.InNamespace(service.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service.Name})
	if err != nil {
		return fmt.Errorf("list the service's endpoint slices on the host: %w", err)
	}
	for i := range all.Items {
		slice := &all.Items[i]
		if _, written := translate.IdentityOf(slice); !written {
			continue
		}
		if err := a.Writer.Delete(ctx, &discoveryv1.EndpointSlice{ObjectMeta: slice.ObjectMeta}, client.Preconditions{UID: &slice.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the service's endpoint slices before it is exposed: %w", err)
		}
	}
	return nil
}
