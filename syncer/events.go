// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// syncEvents brings up what the host's kubelets and scheduler say of the
// space's pods and claims, in the space's own terms. Each side forgets its
// events by itself.
func (s *Syncer) syncEvents() error {
	s.work[events] = func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		e, exists := cached[*corev1.Event](s.host, events, key.Namespace, key.Name)
		if !exists {
			return 0, nil
		}
		want := s.eventUp(e)
		if want == nil {
			return 0, nil
		}
		have := &corev1.Event{}
		err := s.virtualAPI.Get(ctx, client.ObjectKeyFromObject(want), have)
		if apierrors.IsNotFound(err) {
			err = s.virtualAPI.Create(ctx, want)
			if apierrors.IsForbidden(err) || apierrors.IsAlreadyExists(err) {
				err = nil // its namespace is going away, or somebody was faster
			}
			return 0, err
		}
		if err != nil || !translate.PullEvent(want, have) {
			return 0, err
		}
		return 0, s.virtualAPI.Update(ctx, have)
	}
	s.fromHost(events, func(obj client.Object, enqueue func(Key)) {
		enqueue(Key{Kind: events, NamespacedName: client.ObjectKeyFromObject(obj)})
	})
	return nil
}

// eventUp is the space's version of a host event, nil for one that is none of
// the space's business.
func (s *Syncer) eventUp(e *corev1.Event) *corev1.Event {
	about := e.InvolvedObject
	core := s.informers.Core().V1()
	switch about.Kind {
	case "Pod":
		host, v, ok := pair[*corev1.Pod](s, pods, core.Pods().Informer(), about)
		if !ok {
			return nil
		}
		return s.space.PodEvent(e, v, host)
	case "PersistentVolumeClaim":
		_, v, ok := pair[*corev1.PersistentVolumeClaim](s, claims, core.PersistentVolumeClaims().Informer(), about)
		if !ok {
			return nil
		}
		return s.space.ClaimEvent(e, v)
	default:
		return nil
	}
}

// pair finds the host object that an event is about, and its virtual object.
func pair[T client.Object](s *Syncer, kind string, virtual cache.SharedIndexInformer, about corev1.ObjectReference) (host, v T, ok bool) {
	host, ok = cached[T](s.host, kind, about.Namespace, about.Name)
	if !ok {
		return host, v, false
	}
	id, ours := translate.IdentityOf(host)
	if !ours || id.Space != s.space.Name {
		return host, v, false
	}
	v, ok = inStore[T](virtual, types.NamespacedName{Namespace: id.Namespace, Name: id.Name})
	return host, v, ok && v.GetUID() == id.UID
}
