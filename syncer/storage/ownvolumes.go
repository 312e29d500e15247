// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/volume"
)

// ownVolumes takes the volumes that the tenant creates to the host. A claim names its volume, and the volume is on the
// host while it is bound to this claim in the space. There, it comes before the claim: so the claim finds the space's
// volume under the name, or none.
type ownVolumes struct {
	*engine.Engine
	handles []volume.Handles
}

// indexVolume is an index of claims by the tenant's own volume that they name.
const indexVolume = "berth.dev/volume"

func (s *Syncer) newOwnVolumes() *ownVolumes {
	o := &ownVolumes{Engine: s.Engine}
	for _, rule := range s.Sync.VolumeRules() {
		o.handles = append(o.handles, volume.Handles{Driver: rule.Driver, Prefix: rule.Of(s.Space.Name)})
	}
	return o
}

func (s *Syncer) syncOwnVolumes() error {
	o := s.newOwnVolumes()
	if err := o.claims().AddIndexers(cache.Indexers{indexVolume: func(obj any) ([]string, error) {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && translate.NamedVolume(claim) != "" {
			return []string{translate.NamedVolume(claim)}, nil
		}
		return nil, nil
	}}); err != nil {
		return fmt.Errorf("index claims by volume: %w", err)
	}
	k := &engine.Resource[*corev1.PersistentVolume]{
		Engine: s.Engine, Name: resources.ExportedVolumes, NameLimit: translate.LimitSubdomain,
		Virtual:         o.volumes(),
		Bound:           s.Bound(bounds.ExportedVolumes, "volumes of the tenant's own on the host"),
		DeleteForbidden: true, MakesRequests: true,
		UpdateHost: volume.Push, NeedsRecreate: volume.NeedsRecreate,
		SyncStatus: o.syncStatus,
		OnHostEvent: func(host *corev1.PersistentVolume, enqueue func(engine.Key)) {
			if id, ok := translate.IdentityOf(host); ok {
				o.enqueueClaims(id.Name, enqueue)
			}
		},
	}
	k.ToHost = func(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolume, bool, error) {
		host, wanted, err := o.toHost(ctx, v)
		if there, exists := hostcache.Get[*corev1.PersistentVolume](o.Host, k.Name, "", k.Space.ClusterName(v.Name)); err == nil && wanted && exists {
			err = k.Ours(v, there)
		}
		return host, wanted, err
	}
	engine.Add(k, func(v *corev1.PersistentVolume, enqueue func(engine.Key)) { o.enqueueClaims(v.Name, enqueue) })
	return nil
}

func (o *ownVolumes) claims() cache.SharedIndexInformer {
	return o.Informers.Core().V1().PersistentVolumeClaims().Informer()
}

func (o *ownVolumes) volumes() cache.SharedIndexInformer {
	return o.Informers.Core().V1().PersistentVolumes().Informer()
}

// enqueueClaims enqueues the claims that name a volume.
func (o *ownVolumes) enqueueClaims(name string, enqueue func(engine.Key)) {
	claims, err := o.claims().GetIndexer().ByIndex(indexVolume, name)
	if err != nil {
		return // can't happen: the index exists
	}
	for _, item := range claims {
		if claim, ok := item.(*corev1.PersistentVolumeClaim); ok {
			enqueue(engine.Key{Resource: resources.Claims, NamespacedName: client.ObjectKeyFromObject(claim)})
		}
	}
}

// bind binds a claim to the tenant's own volume that it names, first in the space and then on the host. It returns true
// until the volume is on the host: an event of the volume triggers another sync of the claim.
func (o *ownVolumes) bind(ctx context.Context, claim *corev1.PersistentVolumeClaim) (waits bool, err error) {
	name := translate.NamedVolume(claim)
	v, exists := engine.Stored[*corev1.PersistentVolume](o.volumes(), types.NamespacedName{Name: name})
	if err := engine.Forbid(o.check(claim, v, exists)); err != nil {
		return false, err
	}
	if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == "" {
		out := v.DeepCopy()
		out.Spec.ClaimRef = &corev1.ObjectReference{
			APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
		}
		return true, o.VirtualAPI.Update(ctx, out) // fails if another claim has been faster
	}
	host, exists := hostcache.Get[*corev1.PersistentVolume](o.Host, resources.ExportedVolumes, "", o.Space.ClusterName(name))
	if !exists || host.DeletionTimestamp != nil {
		return true, nil
	}
	id, ours := translate.IdentityOf(host)
	return !ours || id.Space != o.Space.Name || id.UID != v.UID, nil
}

// capacity returns the capacity that the host has of a volume; nil if it is not on the host.
func (o *ownVolumes) capacity(name string) *resource.Quantity {
	if host, ok := hostcache.Get[*corev1.PersistentVolume](o.Host, resources.ExportedVolumes, "", o.Space.ClusterName(name)); ok {
		return host.Spec.Capacity.Storage()
	}
	return nil
}

// check returns why a claim can't have the volume that it names.
func (o *ownVolumes) check(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume, exists bool) field.ErrorList {
	path, name := field.NewPath("spec", "volumeName"), translate.NamedVolume(claim)
	switch {
	case !exists, !volume.IsTenants(v):
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("PersistentVolume %q does not exist, or Berth created it for another claim; create it, or leave out the field", name))}
	case v.DeletionTimestamp != nil:
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("PersistentVolume %q is being deleted", name))}
	}
	if ref := v.Spec.ClaimRef; ref != nil && (ref.Namespace != claim.Namespace || ref.Name != claim.Name || ref.UID != "" && ref.UID != claim.UID) {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("PersistentVolume %q is bound to the claim %s/%s with the UID %q; "+
			"if that claim is deleted, remove spec.claimRef of the volume", name, ref.Namespace, ref.Name, ref.UID))}
	}
	if errs := volume.Check(v, o.handles); len(errs) > 0 {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("PersistentVolume %q cannot be used: %s", name, errs.ToAggregate()))}
	}
	return volume.CheckClaim(claim, v)
}

// toHost returns the host object of a tenant's volume, if a claim has it.
func (o *ownVolumes) toHost(ctx context.Context, v *corev1.PersistentVolume) (host *corev1.PersistentVolume, wanted bool, err error) {
	ref := v.Spec.ClaimRef
	if !volume.IsTenants(v) || v.Spec.CSI == nil {
		return nil, false, nil
	}
	if ref == nil || ref.UID == "" {
		return nil, false, o.setPhase(ctx, v, corev1.VolumeAvailable)
	}
	claim, err := o.claimOf(ctx, ref)
	switch {
	case err != nil:
		return nil, false, err
	case claim == nil:
		return nil, false, o.setPhase(ctx, v, corev1.VolumeReleased)
	case translate.NamedVolume(claim) != v.Name:
		return nil, false, nil
	}
	if err := engine.Forbid(volume.Check(v, o.handles)); err != nil {
		return nil, false, err
	}
	host = volume.ToHost(o.Space, v)
	if _, exists := hostcache.Get[*corev1.PersistentVolume](o.Host, resources.ExportedVolumes, "", host.Name); exists {
		return host, true, nil
	}
	if bound, ok := hostcache.Get[*corev1.PersistentVolumeClaim](o.Host, resources.Claims, o.Space.HostNamespace(), host.Spec.ClaimRef.Name); ok {
		host.Spec.ClaimRef.UID = bound.UID // the host claim has lost its volume, and gets it again only if it is named exactly
	}
	return host, true, o.SetOwner(ctx, host)
}

// claimOf returns the claim that a volume is bound to; nil if it is gone.
func (o *ownVolumes) claimOf(ctx context.Context, ref *corev1.ObjectReference) (*corev1.PersistentVolumeClaim, error) {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if claim, exists := engine.Stored[*corev1.PersistentVolumeClaim](o.claims(), key); exists && claim.UID == ref.UID {
		return claim, nil
	}
	claim := &corev1.PersistentVolumeClaim{} // the watch may be behind
	err := o.VirtualAPI.Get(ctx, key, claim)
	if apierrors.IsNotFound(err) || err == nil && claim.UID != ref.UID {
		return nil, nil
	}
	return claim, err
}

// syncStatus shows in the space that the host has bound a volume.
func (o *ownVolumes) syncStatus(ctx context.Context, v, host *corev1.PersistentVolume) (time.Duration, error) {
	if host.Status.Phase != corev1.VolumeBound {
		return 0, nil
	}
	return 0, o.setPhase(ctx, v, corev1.VolumeBound)
}

// setPhase sets the phase of a tenant's volume, as the binder of a cluster would. The protection controller removes its
// finalizer only from a volume that is not bound.
func (o *ownVolumes) setPhase(ctx context.Context, v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase) error {
	if v.Status.Phase == phase {
		return nil
	}
	out := v.DeepCopy()
	out.Status = corev1.PersistentVolumeStatus{Phase: phase}
	return o.VirtualAPI.Status().Update(ctx, out)
}
