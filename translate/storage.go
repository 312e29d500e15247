// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// VolumeDriver is the driver that the space sees in place of the drivers of the host's volumes.
const VolumeDriver = "volumes." + Domain

const (
	annotationDefaultClass  = "storageclass.kubernetes.io/is-default-class"
	annotationBindCompleted = "pv.kubernetes.io/bind-completed"
)

// CheckClaim returns an error for each field of a volume claim that the host can't allow a tenant. Claims may use
// snapshots as data sources only if snapshots are synced, and name volumes only if the tenant's own volumes are.
func CheckClaim(spec *corev1.PersistentVolumeClaimSpec, snapshots, volumes bool) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	forbid := func(name string, set bool) {
		if set {
			errs = append(errs, field.Forbidden(path.Child(name), "a space cannot select volumes of the host; remove the field and set a storage class"))
		}
	}
	named := volumes && spec.VolumeName != ""
	forbid("volumeName", spec.VolumeName != "" && !named)
	forbid("selector", spec.Selector != nil)
	forbid("volumeAttributesClassName", spec.VolumeAttributesClassName != nil && *spec.VolumeAttributesClassName != "")
	if class := spec.StorageClassName; class != nil && *class == "" && !named {
		errs = append(errs, field.Forbidden(path.Child("storageClassName"),
			"an empty class could bind any volume that was created manually on the host; set a storage class, or remove the field to use the default class"))
	}
	only := "only a PersistentVolumeClaim of the same namespace can be copied"
	if snapshots {
		only = "only a PersistentVolumeClaim or a VolumeSnapshot of the same namespace can be copied"
	}
	copies := func(group *string, kind string, namespace *string) bool {
		return isClaim(group, kind, namespace) || snapshots && isSnapshot(group, kind, namespace)
	}
	if ref := spec.DataSource; ref != nil && !copies(ref.APIGroup, ref.Kind, nil) {
		errs = append(errs, field.Forbidden(path.Child("dataSource"), only))
	}
	if ref := spec.DataSourceRef; ref != nil && !copies(ref.APIGroup, ref.Kind, ref.Namespace) {
		errs = append(errs, field.Forbidden(path.Child("dataSourceRef"), only))
	}
	return errs
}

// AskedClaim returns the spec of an existing claim as the tenant wrote it, without what Berth has added.
func AskedClaim(v *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimSpec {
	spec := v.Spec
	spec.VolumeName = NamedVolume(v)
	return &spec
}

func isClaim(group *string, kind string, namespace *string) bool {
	return (group == nil || *group == "") && kind == "PersistentVolumeClaim" && (namespace == nil || *namespace == "")
}

// Claim returns v's host object.
func (s Space) Claim(v *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	p := v.Spec.DeepCopy()
	host := &corev1.PersistentVolumeClaim{
		ObjectMeta: s.ObjectMeta(v, LimitSubdomain),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: p.AccessModes, Resources: p.Resources,
			StorageClassName: p.StorageClassName, VolumeMode: p.VolumeMode,
		},
	}
	if ref := p.DataSourceRef; ref != nil && (isClaim(ref.APIGroup, ref.Kind, ref.Namespace) || isSnapshot(ref.APIGroup, ref.Kind, ref.Namespace)) {
		host.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: ref.Kind, Name: s.HostName(v.Namespace, ref.Name, LimitSubdomain)}
		if ref.Kind != "PersistentVolumeClaim" {
			host.Spec.DataSourceRef.APIGroup = ref.APIGroup
		}
	}
	return host
}

// PushClaim copies the mutable fields of a claim, which is only its size, to have. It reports whether it differed. The
// size of a tenant's own volume is fixed.
func PushClaim(want, have *corev1.PersistentVolumeClaim) bool {
	changed := PushMeta(want, have)
	asked := want.Spec.Resources.Requests[corev1.ResourceStorage]
	if want.Spec.VolumeName == "" && asked.Cmp(have.Spec.Resources.Requests[corev1.ResourceStorage]) != 0 {
		have.Spec.Resources.Requests = want.Spec.Resources.Requests
		changed = true
	}
	return changed
}

// NamedVolume returns the name of the tenant's own volume that a claim names. It is empty if the claim names none: then,
// the host provisions a volume.
func NamedVolume(v *corev1.PersistentVolumeClaim) string {
	if v.Spec.VolumeName == VolumeName(v) {
		return ""
	}
	return v.Spec.VolumeName
}

// VolumeName returns the name in the space of the volume that is bound to v: the name that a provisioner in the space
// would use.
func VolumeName(v *corev1.PersistentVolumeClaim) string { return "pvc-" + string(v.UID) }

// PullClaim returns v with the binding and the status of the host's claim: the volume's name in the space, and the
// status without what controllers of the host wrote for themselves.
func PullClaim(v, host *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	out, status := v.DeepCopy(), host.Status.DeepCopy()
	out.Status = corev1.PersistentVolumeClaimStatus{
		Phase:                     status.Phase,
		AccessModes:               status.AccessModes,
		Capacity:                  status.Capacity,
		AllocatedResources:        status.AllocatedResources,
		AllocatedResourceStatuses: status.AllocatedResourceStatuses,
	}
	for _, c := range host.Status.Conditions {
		c.Message = "" // drivers write messages about the host
		out.Status.Conditions = append(out.Status.Conditions, c)
	}
	if host.Status.Phase == corev1.ClaimBound {
		if NamedVolume(v) == "" {
			out.Spec.VolumeName = VolumeName(v)
		}
		if out.Annotations[annotationBindCompleted] == "" {
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, annotationBindCompleted, "yes")
		}
	}
	return out
}

// Volume returns the space's copy of the host's volume that is bound to v's host claim: its size and modes. Its source
// stays on the host (N1).
func Volume(v *corev1.PersistentVolumeClaim, host *corev1.PersistentVolume) *corev1.PersistentVolume {
	p := host.Spec.DeepCopy()
	class := ""
	if v.Spec.StorageClassName != nil {
		class = *v.Spec.StorageClassName
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        VolumeName(v),
			Labels:      map[string]string{LabelManagedBy: ManagedBy},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": VolumeDriver},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      p.Capacity,
			AccessModes:                   p.AccessModes,
			PersistentVolumeReclaimPolicy: p.PersistentVolumeReclaimPolicy,
			StorageClassName:              class,
			VolumeMode:                    p.VolumeMode,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: VolumeDriver, VolumeHandle: VolumeName(v)},
			},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: v.Namespace, Name: v.Name, UID: v.UID,
			},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

// PullVolume copies the host's volume to have. It reports whether anything differed.
func PullVolume(want, have *corev1.PersistentVolume) bool {
	spec := want.Spec.DeepCopy()
	spec.ClaimRef.ResourceVersion = ""
	if have.Spec.ClaimRef != nil {
		spec.ClaimRef.ResourceVersion = have.Spec.ClaimRef.ResourceVersion
	}
	if equality.Semantic.DeepEqual(*spec, have.Spec) {
		return false
	}
	have.Spec = *spec
	return true
}

// StorageClass returns the space's copy of a class of the host, without parameters, mount options, and topologies,
// which name the host's secrets and zones.
func StorageClass(host *storagev1.StorageClass) *storagev1.StorageClass {
	host = host.DeepCopy()
	out := &storagev1.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{Name: host.Name, Labels: map[string]string{LabelManagedBy: ManagedBy}},
		Provisioner:          VolumeDriver,
		ReclaimPolicy:        host.ReclaimPolicy,
		VolumeBindingMode:    host.VolumeBindingMode,
		AllowVolumeExpansion: host.AllowVolumeExpansion,
	}
	if value := host.Annotations[annotationDefaultClass]; value != "" {
		out.Annotations = map[string]string{annotationDefaultClass: value}
	}
	return out
}

// IsDefaultStorage reports whether a class is the default for claims that name none.
func IsDefaultStorage(class *storagev1.StorageClass) bool {
	return class.Annotations[annotationDefaultClass] == "true"
}

// NewerClass reports whether, of two default classes, a is the one that is used.
func NewerClass(a, b metav1.Object) bool {
	of, than := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if !of.Equal(&than) {
		return than.Before(&of)
	}
	return a.GetName() < b.GetName()
}

// PullStorageClass copies the host's class to have. It reports whether anything differed, and whether that includes
// immutable fields, so that the class must be recreated.
func PullStorageClass(want, have *storagev1.StorageClass) (changed, recreate bool) {
	recreate = want.Provisioner != have.Provisioner || !equality.Semantic.DeepEqual(want.ReclaimPolicy, have.ReclaimPolicy) ||
		!equality.Semantic.DeepEqual(want.VolumeBindingMode, have.VolumeBindingMode) || len(have.Parameters) > 0
	if !equality.Semantic.DeepEqual(want.AllowVolumeExpansion, have.AllowVolumeExpansion) {
		have.AllowVolumeExpansion, changed = want.AllowVolumeExpansion, true
	}
	if want.Annotations[annotationDefaultClass] != have.Annotations[annotationDefaultClass] {
		metav1.SetMetaDataAnnotation(&have.ObjectMeta, annotationDefaultClass, want.Annotations[annotationDefaultClass])
		changed = true
	}
	if have.Labels[LabelManagedBy] != ManagedBy {
		metav1.SetMetaDataLabel(&have.ObjectMeta, LabelManagedBy, ManagedBy)
		changed = true
	}
	return changed, recreate
}
