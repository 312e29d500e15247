// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/classes"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/volume"
)

// Syncer syncs volume claims, their volumes, and their snapshots.
type Syncer struct {
	*engine.Engine
	classes *classes.Syncer
}

// New returns the syncer of the claims of an engine's space.
func New(e *engine.Engine, classes *classes.Syncer) *Syncer { return &Syncer{e, classes} }

// Declarations returns the functions that declare this package's resources to the engine.
func (s *Syncer) Declarations() map[string]func() error {
	return map[string]func() error{
		resources.Claims: s.syncClaims, resources.Volumes: s.syncVolumes, resources.ExportedVolumes: s.syncOwnVolumes,
		resources.VolumeSnapshots: s.syncSnapshots,
	}
}

// syncClaims syncs volume claims to the host, which provisions and binds them, and imports the bound volumes into the
// space.
func (s *Syncer) syncClaims() error {
	own := s.newOwnVolumes()
	k := &engine.Resource[*corev1.PersistentVolumeClaim]{
		Engine: s.Engine, Name: resources.Claims, NameLimit: translate.LimitSubdomain,
		Virtual: s.Informers.Core().V1().PersistentVolumeClaims().Informer(),
		ToHost: func(_ context.Context, v *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, bool, error) {
			errs := translate.CheckClaim(translate.AskedClaim(v), s.Sync.On(resources.VolumeSnapshots), s.Sync.On(resources.ExportedVolumes))
			host := s.Space.Claim(v)
			if name := translate.NamedVolume(v); name != "" {
				volume.ForClaim(s.Space, host, name, own.capacity(name))
			}
			return host, true, engine.Forbid(errs)
		},
		UpdateHost: translate.PushClaim,
		SyncStatus: s.syncClaimStatus,
	}
	k.HandleMissing = func(ctx context.Context, v *corev1.PersistentVolumeClaim) (bool, error) {
		if translate.NamedVolume(v) != "" {
			return own.bind(ctx, v)
		}
		return handleMissingClaim(ctx, k, v)
	}
	k.BeforeCreate = func(ctx context.Context, v, want *corev1.PersistentVolumeClaim) (err error) {
		if want.Spec.VolumeName != "" {
			return nil
		}
		want.Spec.StorageClassName, err = s.classes.HostStorage(ctx, v)
		return err
	}
	engine.Add(k, func(v *corev1.PersistentVolumeClaim, enqueue func(engine.Key)) {
		enqueue(engine.Key{Resource: resources.Volumes, NamespacedName: types.NamespacedName{Name: translate.VolumeName(v)}})
		if name := translate.NamedVolume(v); name != "" && s.Sync.On(resources.ExportedVolumes) {
			enqueue(engine.Key{Resource: resources.ExportedVolumes, NamespacedName: types.NamespacedName{Name: name}})
		}
	})
	return nil
}

func (s *Syncer) syncClaimStatus(ctx context.Context, v, host *corev1.PersistentVolumeClaim) (time.Duration, error) {
	want := translate.PullClaim(v, host)
	if v.Spec.StorageClassName == nil && host.Spec.StorageClassName != nil {
		// The claim was created before the space had a default class. As on any cluster, it gets the class later. The
		// name of a class that is not imported, or no longer, stays on the host.
		if _, ok := hostcache.Imported[*storagev1.StorageClass](s.Host, s.Sync, resources.StorageClasses, *host.Spec.StorageClassName); ok {
			want.Spec = *v.Spec.DeepCopy()
			want.Spec.StorageClassName = host.Spec.StorageClassName
			return 0, s.VirtualAPI.Update(ctx, want) // the update triggers another sync
		}
	}
	if want.Spec.VolumeName != "" && translate.NamedVolume(v) == "" {
		if err := s.ensureVolume(ctx, v, host.Spec.VolumeName); err != nil {
			return 0, err
		}
	}
	if want.Spec.VolumeName != v.Spec.VolumeName || !equality.Semantic.DeepEqual(want.Annotations, v.Annotations) {
		return 0, s.VirtualAPI.Update(ctx, want) // the update triggers another sync
	}
	if equality.Semantic.DeepEqual(want.Status, v.Status) {
		return 0, nil
	}
	return 0, s.VirtualAPI.Status().Update(ctx, want)
}

// handleMissingClaim marks a bound claim as lost if its host claim is gone. Its data is gone, too, and an empty volume
// in its place would hide that. Only a claim that never had a volume gets a new host claim.
func handleMissingClaim(ctx context.Context, k *engine.Resource[*corev1.PersistentVolumeClaim], v *corev1.PersistentVolumeClaim) (bool, error) {
	if v.Spec.VolumeName == "" {
		return false, nil
	}
	_, err := k.Live(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: k.Space.HostNamespace(), Name: k.Space.HostName(v.Namespace, v.Name, k.NameLimit),
	}})
	if !apierrors.IsNotFound(err) {
		return true, err
	}
	if v.Status.Phase == corev1.ClaimLost {
		return true, nil
	}
	k.Recorder.Record(v, corev1.EventTypeWarning, engine.ReasonLost, "the claim's volume was deleted on the host with its data; delete the claim and create it again")
	out := v.DeepCopy()
	out.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimLost}
	return true, k.VirtualAPI.Status().Update(ctx, out)
}

// ensureVolume creates or repairs the space's copy of the host's volume.
func (s *Syncer) ensureVolume(ctx context.Context, v *corev1.PersistentVolumeClaim, hostVolume string) error {
	if !s.Sync.On(resources.Volumes) {
		return nil
	}
	host, err := s.hostVolume(ctx, hostVolume)
	if err != nil {
		return fmt.Errorf("read the volume of claim %s/%s: %w", v.Namespace, v.Name, err)
	}
	if ref := host.Spec.ClaimRef; ref == nil || ref.Namespace != s.Space.HostNamespace() {
		return nil // not (or no longer) bound to this space
	}
	want := translate.Volume(v, host)
	have, err := s.Informers.Core().V1().PersistentVolumes().Lister().Get(want.Name)
	if apierrors.IsNotFound(err) {
		if err := s.VirtualAPI.Create(ctx, want.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil // its deletion triggers another sync
	}
	if err != nil {
		return err
	}
	have = have.DeepCopy()
	if translate.PullVolume(want, have) {
		return s.VirtualAPI.Update(ctx, have)
	}
	if have.Status.Phase != corev1.VolumeBound {
		have.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}
		return s.VirtualAPI.Status().Update(ctx, have)
	}
	return nil
}

// hostVolume returns the host's volume to which a claim of the space is bound.
func (s *Syncer) hostVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	if host, ok := hostcache.Get[*corev1.PersistentVolume](s.Host, resources.Volumes, "", name); ok && host.Spec.ClaimRef != nil {
		return host, nil
	}
	host := &corev1.PersistentVolume{} // the watch is behind, has only the name, or there is no such volume
	return host, s.Host.Reader.Get(ctx, types.NamespacedName{Name: name}, host)
}

// syncVolumes deletes the space's volumes when their claims are gone.
func (s *Syncer) syncVolumes() error {
	informer := s.Informers.Core().V1().PersistentVolumes()
	s.Work[resources.Volumes] = func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		v, err := informer.Lister().Get(key.Name)
		if err != nil || v.Labels[translate.LabelManagedBy] != translate.ManagedBy || v.Spec.ClaimRef == nil {
			return 0, client.IgnoreNotFound(err)
		}
		ref := v.Spec.ClaimRef
		claim := &corev1.PersistentVolumeClaim{}
		err = s.VirtualAPI.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, claim)
		if client.IgnoreNotFound(err) != nil || err == nil && claim.UID == ref.UID {
			return 0, client.IgnoreNotFound(err)
		}
		// The protection controller removes its finalizer only from a volume that is no longer bound.
		if v.Status.Phase != corev1.VolumeReleased {
			out := v.DeepCopy()
			out.Status.Phase = corev1.VolumeReleased
			return 0, s.VirtualAPI.Status().Update(ctx, out)
		}
		return 0, s.VirtualAPI.Delete(ctx, v, client.Preconditions{UID: &v.UID})
	}
	s.FromSpace(informer.Informer(), func(obj client.Object, enqueue func(engine.Key)) {
		enqueue(engine.Key{Resource: resources.Volumes, NamespacedName: types.NamespacedName{Name: obj.GetName()}})
		if v, ok := obj.(*corev1.PersistentVolume); ok && v.Spec.ClaimRef != nil {
			enqueue(engine.Key{Resource: resources.Claims, NamespacedName: types.NamespacedName{Namespace: v.Spec.ClaimRef.Namespace, Name: v.Spec.ClaimRef.Name}})
		}
	})
	s.FromHost(resources.Volumes, func(obj client.Object, enqueue func(engine.Key)) {
		v, ok := obj.(*corev1.PersistentVolume)
		if !ok || v.Spec.ClaimRef == nil {
			return
		}
		if host, ok := hostcache.Get[*corev1.PersistentVolumeClaim](s.Host, resources.Claims, v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name); ok {
			if key, ok := engine.KeyOf(resources.Claims, host); ok {
				enqueue(key)
			}
		}
	})
	return nil
}
