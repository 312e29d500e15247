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
	// annotationProvisionedBy is upstream's annotation on volumes that were provisioned for a claim.
	annotationProvisionedBy = "pv.kubernetes.io/provisioned-by"
)

// CheckSnapshot returns an error for each field of a snapshot that the host can't allow a tenant.
func CheckSnapshot(v *snapshotv1.VolumeSnapshot) (errs field.ErrorList) {
	if v.Spec.Source.VolumeSnapshotContentName != nil {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "source", "volumeSnapshotContentName"),
			"contents belong to the host, and may be another space's; name a claim by persistentVolumeClaimName"))
	}
	return errs
}

// Snapshot returns v's host object, for the host's claim.
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

// PushSnapshot copies the mutable fields of a snapshot to have. The spec has none: the host sets the class.
func PushSnapshot(want, have *snapshotv1.VolumeSnapshot) bool { return PushMeta(want, have) }

// PullSnapshotStatus returns what v's tenant sees of the host's status. The messages of drivers are dropped, because
// they name the host's volumes. The name of the content, which is an object of the host, is replaced by one that only
// shows that it exists.
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

// IsDefaultSnapshots reports whether a class is the default for snapshots that name none.
func IsDefaultSnapshots(class *snapshotv1.VolumeSnapshotClass) bool {
	return class.Annotations[annotationDefaultSnapshotClass] == "true"
}

// DriverOf returns the driver of a host's volume, which takes its snapshots.
func DriverOf(host *corev1.PersistentVolume) string {
	if csi := host.Spec.CSI; csi != nil {
		return csi.Driver
	}
	return host.Annotations[annotationProvisionedBy]
}

// SnapshotClass returns the space's copy of the host's class, without parameters, which name the host's secrets.
func SnapshotClass(host *snapshotv1.VolumeSnapshotClass) *snapshotv1.VolumeSnapshotClass {
	return &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: classMeta(host, annotationDefaultSnapshotClass), Driver: VolumeDriver, DeletionPolicy: host.DeletionPolicy,
	}
}

// PullSnapshotClass copies the host's class to have. It reports whether anything differed; nothing needs recreation.
func PullSnapshotClass(want, have *snapshotv1.VolumeSnapshotClass) (changed, recreate bool) {
	changed = pullClassMeta(want, have, annotationDefaultSnapshotClass)
	if have.Driver != want.Driver || have.DeletionPolicy != want.DeletionPolicy || len(have.Parameters) > 0 {
		have.Driver, have.DeletionPolicy, have.Parameters, changed = want.Driver, want.DeletionPolicy, nil, true
	}
	return changed, false
}

// isSnapshot reports whether the data source of a claim is a snapshot in the claim's own namespace.
func isSnapshot(group *string, kind string, namespace *string) bool {
	return ptr.Deref(group, "") == snapshotv1.GroupName && kind == "VolumeSnapshot" && ptr.Deref(namespace, "") == ""
}
