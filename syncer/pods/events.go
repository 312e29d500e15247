// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
)

// The host's watches are not synchronized, so an event may arrive before the object that it is about. Until the event
// is this old, it is checked again.
const (
	eventTimeout = 30 * time.Second
	eventRetry   = time.Second
)

// syncEvents copies the events of the host's kubelets and scheduler about the space's pods and claims into the space,
// with the space's names. On each side, events expire by themselves.
func (s *Syncer) syncEvents() error {
	s.Work[resources.Events] = func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		e, exists := hostcache.Get[*corev1.Event](s.Host, resources.Events, key.Namespace, key.Name)
		if !exists {
			return 0, nil
		}
		want, known := s.eventUp(e)
		if !known && s.Clock.Since(e.CreationTimestamp.Time) < eventTimeout {
			return eventRetry, nil
		}
		if want == nil {
			return 0, nil
		}
		have := &corev1.Event{}
		err := s.VirtualAPI.Get(ctx, client.ObjectKeyFromObject(want), have)
		if apierrors.IsNotFound(err) {
			err = s.VirtualAPI.Create(ctx, want)
			if apierrors.IsForbidden(err) || apierrors.IsAlreadyExists(err) {
				err = nil // the namespace is being deleted, or the event exists already
			}
			return 0, err
		}
		if err != nil || !pod.PullEvent(want, have) {
			return 0, err
		}
		return 0, s.VirtualAPI.Update(ctx, have)
	}
	s.FromHost(resources.Events, func(obj client.Object, enqueue func(engine.Key)) {
		enqueue(engine.Key{Resource: resources.Events, NamespacedName: client.ObjectKeyFromObject(obj)})
	})
	return nil
}

// eventUp returns the space's version of a host event, or nil if the event is not for the space. known reports whether
// the object of the event is known.
func (s *Syncer) eventUp(e *corev1.Event) (up *corev1.Event, known bool) {
	about := e.InvolvedObject
	core := s.Informers.Core().V1()
	switch about.Kind {
	case "Pod":
		host, known := hostcache.Get[*corev1.Pod](s.Host, resources.Pods, about.Namespace, about.Name)
		if v, ok := ofHost[*corev1.Pod](s, host, known, core.Pods().Informer()); ok {
			return pod.Event(s.Space, e, v, host), true
		}
		return nil, known
	case "PersistentVolumeClaim":
		host, known := hostcache.Get[*corev1.PersistentVolumeClaim](s.Host, resources.Claims, about.Namespace, about.Name)
		if v, ok := ofHost[*corev1.PersistentVolumeClaim](s, host, known, core.PersistentVolumeClaims().Informer()); ok {
			return pod.ClaimEvent(e, v), true
		}
		return nil, known
	default:
		return nil, true
	}
}

// ofHost returns the virtual object of a host object, if it is known.
func ofHost[T client.Object](s *Syncer, host T, known bool, virtual cache.SharedIndexInformer) (v T, ok bool) {
	if !known {
		return v, false
	}
	id, ours := translate.IdentityOf(host)
	if !ours || id.Space != s.Space.Name {
		return v, false
	}
	v, ok = engine.Stored[T](virtual, types.NamespacedName{Namespace: id.Namespace, Name: id.Name})
	return v, ok && v.GetUID() == id.UID
}
