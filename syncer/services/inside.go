// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// ReservePods makes sure that the host's services for the space's DNS and API route to where the space's pods reach
// Berth, and returns the nameserver of these pods. It is called before the space starts, after [Addresses.ReserveAPI],
// so that its writes don't wake the space.
func (a *Addresses) ReservePods(ctx context.Context, space translate.Space) (nameserver string, err error) {
	writer, err := a.as(space)
	if err != nil {
		return "", err
	}
	service, err := ensure(ctx, writer, space.DNSService(), func(want, have *corev1.Service) bool {
		changed := translate.PushMeta(want, have)
		if !samePorts(want.Spec.Ports, have.Spec.Ports) || len(have.Spec.Selector) > 0 {
			have.Spec.Ports, have.Spec.Selector, changed = want.Spec.Ports, nil, true
		}
		return changed
	})
	if err != nil {
		return "", fmt.Errorf("reserve the nameserver of the space's pods: %w", err)
	}
	for _, slice := range space.PodsEndpoints() {
		if _, err := ensure(ctx, writer, slice, translate.PushEndpointSlice); err != nil {
			return "", fmt.Errorf("lead the space's pods to its API: %w", err)
		}
	}
	return service.Spec.ClusterIP, nil
}

// samePorts compares the requested ports, without the target ports that the host adds.
func samePorts(want, have []corev1.ServicePort) bool {
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if want[i].Name != have[i].Name || want[i].Protocol != have[i].Protocol || want[i].Port != have[i].Port {
			return false
		}
	}
	return true
}

// ensure creates want on the host, or makes push update the existing object, and returns the result.
func ensure[T client.Object](ctx context.Context, writer client.Client, want T, push func(want, have T) bool) (have T, err error) {
	raced := func(err error) bool {
		return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
	}
	err = retry.OnError(retry.DefaultBackoff, raced, func() error {
		have = want.DeepCopyObject().(T)
		err := writer.Get(ctx, client.ObjectKeyFromObject(want), have)
		if apierrors.IsNotFound(err) {
			have = want.DeepCopyObject().(T)
			return writer.Create(ctx, have)
		}
		if err != nil || !push(want, have) {
			return err
		}
		return writer.Update(ctx, have)
	})
	return have, err
}
