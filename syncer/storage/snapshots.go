// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// syncSnapshots syncs volume snapshots to the host, whose controller takes them, and copies their status back.
func (s *Syncer) syncSnapshots() error {
	informer, err := s.FromExtension(resources.VolumeSnapshots)
	if err != nil {
		return err
	}
	engine.Add(&engine.Resource[*snapshotv1.VolumeSnapshot]{
		Engine: s.Engine, Name: resources.VolumeSnapshots, NameLimit: translate.LimitSubdomain,
		Virtual: informer,
		Bound:   s.Bound(bounds.VolumeSnapshots, "volume snapshots"),
		ToHost: func(_ context.Context, v *snapshotv1.VolumeSnapshot) (*snapshotv1.VolumeSnapshot, bool, error) {
			errs := append(engine.CheckUnknown(v), translate.CheckSnapshot(v)...)
			if class := v.Spec.VolumeSnapshotClassName; class != nil {
				if _, ok := hostcache.Imported[*snapshotv1.VolumeSnapshotClass](s.Host, s.Sync, resources.SnapshotClasses, *class); !ok {
					errs = append(errs, field.Forbidden(field.NewPath("spec", "volumeSnapshotClassName"),
						fmt.Sprintf("class %q does not exist, or the host does not offer it to spaces; see 'kubectl get volumesnapshotclasses'", *class)))
				}
			}
			return s.Space.Snapshot(v), true, engine.Forbid(errs)
		},
		BeforeCreate: func(ctx context.Context, v, want *snapshotv1.VolumeSnapshot) (err error) {
			if v.Spec.VolumeSnapshotClassName == nil {
				want.Spec.VolumeSnapshotClassName, err = s.defaultSnapshots(ctx, want)
			}
			return err
		},
		UpdateHost: translate.PushSnapshot,
		SyncStatus: func(ctx context.Context, v, host *snapshotv1.VolumeSnapshot) (time.Duration, error) {
			status := translate.PullSnapshotStatus(v, host)
			if status == nil || equality.Semantic.DeepEqual(status, v.Status) {
				return 0, nil
			}
			out := v.DeepCopy()
			out.Status = status
			return 0, s.VirtualAPI.Status().Update(ctx, out)
		},
	}, nil)
	return nil
}

// defaultSnapshots returns the imported class for a host snapshot without a class: the default class for the driver of
// its volume. The host would use its own default, imported or not.
func (s *Syncer) defaultSnapshots(ctx context.Context, host *snapshotv1.VolumeSnapshot) (*string, error) {
	name := ptr.Deref(host.Spec.Source.PersistentVolumeClaimName, "")
	claim, ok := hostcache.Get[*corev1.PersistentVolumeClaim](s.Host, resources.Claims, host.Namespace, name)
	if !ok || claim.Spec.VolumeName == "" {
		return nil, engine.Forbid(field.ErrorList{field.Forbidden(field.NewPath("spec", "source", "persistentVolumeClaimName"),
			"the claim has no volume yet; Berth retries, or set a class that 'kubectl get volumesnapshotclasses' lists")})
	}
	volume, err := s.hostVolume(ctx, claim.Spec.VolumeName)
	if err != nil {
		return nil, fmt.Errorf("read the volume of the snapshot's claim: %w", err)
	}
	driver := translate.DriverOf(volume)
	var latest *snapshotv1.VolumeSnapshotClass
	for class := range hostcache.AllImported[*snapshotv1.VolumeSnapshotClass](s.Host, s.Sync, resources.SnapshotClasses) {
		if class.Driver == driver && translate.IsDefaultSnapshots(class) && (latest == nil || translate.NewerClass(class, latest)) {
			latest = class
		}
	}
	if latest == nil {
		return nil, engine.Forbid(field.ErrorList{field.Forbidden(field.NewPath("spec", "volumeSnapshotClassName"),
			"no default class matches the claim's volume; set a class that 'kubectl get volumesnapshotclasses' lists")})
	}
	return &latest.Name, nil
}
