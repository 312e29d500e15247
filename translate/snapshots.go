// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

const (
	annotationDefaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"
	// annotationProvisionedBy is upstream's on volumes that were made for a claim.
	annotationProvisionedBy = "pv.kubernetes.io/provisioned-by"
)

// CheckSnapshot lists what a tenant may not ask of the host with a snapshot.
func CheckSnapshot(v *snapshotv1.VolumeSnapshot) (errs field.ErrorList) {
	if v.Spec.Source.VolumeSnapshotContentName != nil {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "source", "volumeSnapshotContentName"),
			"contents belong to the host, and may be another space's; name a claim by persistentVolumeClaimName"))
	}
	return errs
}

// Snapshot is v's host object, of the host's claim.
func (s Space) Snapshot(v *snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshot {
	host := &snapshotv1.VolumeSnapshot{ObjectMeta: s.ObjectMeta(v, LimitSubdomain)}
	if claim := v.Spec.Source.PersistentVolumeClaimName; claim != nil {
		host.Spec.Source.PersistentVolumeClaimName = ptr.To(s.HostName(v.Namespace, *claim, LimitSubdomain))
	}
	if class := v.Spec.VolumeSnapshotClassName; class != nil {
		host.Spec.VolumeSnapshotClassName = ptr.To(*class)
	}
	return host
}

// PushSnapshot copies onto have what may change of a snapshot, which is nothing
// of its spec: its class is the host's to fill in.
func PushSnapshot(want, have *snapshotv1.VolumeSnapshot) bool { return PushMeta(want, have) }

// PullSnapshotStatus is what v's tenant sees of the host's status. A driver's
// message names the host's volumes, and the content is one of the host's: its
// name tells no more than that there is one.
func PullSnapshotStatus(v, host *snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshotStatus {
	h := host.Status.DeepCopy()
	if h == nil {
		return nil
	}
	out := &snapshotv1.VolumeSnapshotStatus{CreationTime: h.CreationTime, ReadyToUse: h.ReadyToUse, RestoreSize: h.RestoreSize}
	if h.BoundVolumeSnapshotContentName != nil {
		out.BoundVolumeSnapshotContentName = ptr.To("snapcontent-" + string(v.UID))
	}
	if h.Error != nil {
		out.Error = &snapshotv1.VolumeSnapshotError{Time: h.Error.Time, Message: ptr.To("the host could not take the snapshot; it retries")}
	}
	return out
}

// IsDefaultSnapshots reports whether a class is for snapshots that name none.
func IsDefaultSnapshots(class *snapshotv1.VolumeSnapshotClass) bool {
	return class.Annotations[annotationDefaultSnapshotClass] == "true"
}

// DriverOf is the driver of a host's volume, by which its snapshots are taken.
func DriverOf(host *corev1.PersistentVolume) string {
	if csi := host.Spec.CSI; csi != nil {
		return csi.Driver
	}
	return host.Annotations[annotationProvisionedBy]
}

// SnapshotClass is what the space sees of the host's class. Its parameters name
// the host's secrets, and stay there.
func SnapshotClass(host *snapshotv1.VolumeSnapshotClass) *snapshotv1.VolumeSnapshotClass {
	return &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: classMeta(host, annotationDefaultSnapshotClass), Driver: VolumeDriver, DeletionPolicy: host.DeletionPolicy,
	}
}

// PullSnapshotClass copies onto have what the host says of a class, and reports
// whether it differed. Nothing of it can change by recreation only.
func PullSnapshotClass(want, have *snapshotv1.VolumeSnapshotClass) (changed, recreate bool) {
	changed = pullClassMeta(want, have, annotationDefaultSnapshotClass)
	if have.Driver != want.Driver || have.DeletionPolicy != want.DeletionPolicy || len(have.Parameters) > 0 {
		have.Driver, have.DeletionPolicy, have.Parameters, changed = want.Driver, want.DeletionPolicy, nil, true
	}
	return changed, false
}

// isSnapshot reports whether a claim's data are those of a snapshot in its own
// namespace.
func isSnapshot(group *string, kind string, namespace *string) bool {
	return ptr.Deref(group, "") == snapshotv1.GroupName && kind == "VolumeSnapshot" && ptr.Deref(namespace, "") == ""
}
