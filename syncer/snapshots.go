// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/translate"
)

// syncSnapshots takes volume snapshots down, where the host's controller takes
// them, and brings back what became of them.
func (s *Syncer) syncSnapshots() error {
	informer, err := s.fromExtension(volumeSnapshots)
	if err != nil {
		return err
	}
	add(&kind[*snapshotv1.VolumeSnapshot]{
		Syncer: s, name: volumeSnapshots, limit: translate.LimitSubdomain,
		fresh:   func() *snapshotv1.VolumeSnapshot { return &snapshotv1.VolumeSnapshot{} },
		virtual: informer,
		bound:   bound{translate.MaxSnapshots, "volume snapshots"},
		down: func(_ context.Context, v *snapshotv1.VolumeSnapshot) (*snapshotv1.VolumeSnapshot, bool, error) {
			errs := append(beyond(v), translate.CheckSnapshot(v)...)
			if class := v.Spec.VolumeSnapshotClassName; class != nil {
				if _, ok := shown[*snapshotv1.VolumeSnapshotClass](s, snapshotClasses, *class); !ok {
					errs = append(errs, field.Forbidden(field.NewPath("spec", "volumeSnapshotClassName"),
						fmt.Sprintf("there is no class %q for spaces; see 'kubectl get volumesnapshotclasses'", *class)))
				}
			}
			return s.space.Snapshot(v), true, forbids(errs)
		},
		push: translate.PushSnapshot,
		pull: func(ctx context.Context, v, host *snapshotv1.VolumeSnapshot) (time.Duration, error) {
			status := translate.PullSnapshotStatus(v, host)
			if status == nil || equality.Semantic.DeepEqual(status, v.Status) {
				return 0, nil
			}
			out := v.DeepCopy()
			out.Status = status
			return 0, s.virtualAPI.Status().Update(ctx, out)
		},
	}, nil)
	return nil
}

func (s *Syncer) syncSnapshotClasses() error {
	informer, err := s.fromExtension(snapshotClasses)
	if err != nil {
		return err
	}
	return show(&class[*snapshotv1.VolumeSnapshotClass]{
		Syncer: s, name: snapshotClasses, virtual: informer, up: translate.SnapshotClass, pull: translate.PullSnapshotClass,
	})
}
