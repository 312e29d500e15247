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

// Endpoints that a tenant writes may be any address, such as one of the host's
// network. A node port or a load balancer must never forward there
// (CVE-2021-25740), for however short a time. Three rules make sure of it, on the
// host itself: a syncer that dies, a request that arrives late, or two processes
// that sync one space change nothing.
//
//   - A slice is created without addresses. It gets them by an update of just that
//     version, after the service was read on the host and had no selector
//     ([Syncer.mayFill]).
//   - A service without a selector first gets one. Only then are its slices listed
//     and deleted, and only after that is it exposed, by an update of just that
//     version ([Account.updateExposed]).
//   - A slice keeps its service; for another it is made anew.
//
// So a slice that is to get addresses while its service is about to be exposed
// existed before the service had a selector, and is among those that are deleted:
// the update that fills it comes before that, or fails.

// createExposed creates a service that is exposed from the start. Nothing of this
// space may make or delete services meanwhile: a service of the same name that
// came and went would leave its slices.
func (a *Account) createExposed(ctx context.Context, service *corev1.Service, opts ...client.CreateOption) error {
	a.exposing.Lock()
	defer a.exposing.Unlock()
	if err := a.deleteWritten(ctx, service); err != nil {
		return err
	}
	return a.Writer.Create(ctx, service, opts...)
}

// updateExposed updates a service that is to be exposed afterwards.
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

// deleteWritten deletes the slices of a host service that a tenant wrote. They are
// listed past the watch, which may lag.
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
