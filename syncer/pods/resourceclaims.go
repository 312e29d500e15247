// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// syncResourceClaims syncs resource claims to the host, whose scheduler allocates devices for them, and copies back that it
// has. The space's own controller creates the claims of templates, and deletes them.
func (s *Syncer) syncResourceClaims() error {
	engine.Add(&engine.Resource[*resourcev1.ResourceClaim]{
		Engine: s.Engine, Name: resources.ResourceClaims, NameLimit: translate.LimitSubdomain,
		Virtual: s.Informers.Resource().V1().ResourceClaims().Informer(),
		ToHost: func(_ context.Context, v *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, bool, error) {
			return s.Space.DeviceClaim(v), true, engine.Forbid(translate.CheckDeviceClaim(s.Space.Settings.Counted, field.NewPath("spec"), &v.ObjectMeta, &v.Spec))
		},
		UpdateHost: translate.PushDeviceClaim,
		SyncStatus: s.syncResourceClaimStatus,
	}, nil)
	return nil
}

func (s *Syncer) syncResourceClaimStatus(ctx context.Context, v, host *resourcev1.ResourceClaim) (time.Duration, error) {
	status := s.Space.PullDeviceClaimStatus(host, s.usersOf(v, host))
	if v.DeletionTimestamp != nil || equality.Semantic.DeepEqual(status, v.Status) {
		return 0, nil // no pod can begin to use a claim that is being deleted
	}
	if v.Status.Allocation != nil && !equality.Semantic.DeepEqual(status.Allocation, v.Status.Allocation) {
		status = resourcev1.ResourceClaimStatus{} // an allocation can't be changed, only removed; the update triggers another sync
	}
	out := v.DeepCopy()
	out.Status = status
	return 0, s.VirtualAPI.Status().Update(ctx, out)
}

// usersOf returns the pods of the space that use a claim. Those that are gone in the space, or have ended there, are left
// out, because the space's controller removes them as well.
func (s *Syncer) usersOf(v, host *resourcev1.ResourceClaim) (users []resourcev1.ResourceClaimConsumerReference) {
	for _, user := range host.Status.ReservedFor {
		hostPod, ok := hostcache.Get[*corev1.Pod](s.Host, resources.Pods, host.Namespace, user.Name)
		if !ok || hostPod.UID != user.UID {
			continue
		}
		id, ok := translate.IdentityOf(hostPod)
		if !ok || id.Namespace != v.Namespace {
			continue
		}
		pod, ok := engine.Stored[*corev1.Pod](s.Informers.Core().V1().Pods().Informer(), types.NamespacedName{Namespace: id.Namespace, Name: id.Name})
		if ok && pod.UID == id.UID && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			users = append(users, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		}
	}
	return users
}
