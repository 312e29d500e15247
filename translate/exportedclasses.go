// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// ClusterMeta returns the metadata of a cluster-scoped host object.
func (s Space) ClusterMeta(v metav1.Object) metav1.ObjectMeta {
	out := s.ObjectMeta(v, LimitSubdomain)
	out.Namespace = ""
	return out
}

// IsTenantClass reports whether the tenant created a class in the space: it is neither imported nor created by
// Kubernetes.
func IsTenantClass(v metav1.Object) bool {
	return v.GetLabels()[LabelManagedBy] != ManagedBy && !strings.HasPrefix(v.GetName(), "system-")
}

// ExportedPriorityClass returns the host object of a tenant's class. The pods of all spaces share one scheduling queue
// and can preempt each other. So the value is at most the admin's limit, and as [Priorities] require it. The class
// preempts only if the admin allows that, for classes and for the space.
func (s Space) ExportedPriorityClass(v *schedulingv1.PriorityClass, highest int32, preempt bool) *schedulingv1.PriorityClass {
	host := &schedulingv1.PriorityClass{ObjectMeta: s.ClusterMeta(v), Value: min(v.Value, highest), PreemptionPolicy: ptr.To(corev1.PreemptNever)}
	switch own := s.Settings.Priorities.OwnNodes; {
	case own && preempt:
		host.PreemptionPolicy = ptr.To(ptr.Deref(v.PreemptionPolicy, corev1.PreemptLowerPriority))
	case !own:
		host.Value = max(0, host.Value)
	}
	return host
}

// PushPriorityClass copies the mutable fields of a class to have. It reports whether anything differed.
func PushPriorityClass(want, have *schedulingv1.PriorityClass) bool {
	changed := PushMeta(want, have)
	if have.GlobalDefault {
		have.GlobalDefault, changed = false, true
	}
	return changed
}

// OtherPriority reports whether immutable fields differ, so that the class must be recreated.
func OtherPriority(want, have *schedulingv1.PriorityClass) bool {
	return want.Value != have.Value || !equality.Semantic.DeepEqual(want.PreemptionPolicy, have.PreemptionPolicy)
}

// CheckStorageClass returns an error for each field of a tenant's class that could affect the host or its provisioner:
// parameters can name secrets in any namespace, mount options are executed on nodes, topologies name labels of nodes,
// and retained volumes would remain without an owner after the space is deleted.
func CheckStorageClass(v *storagev1.StorageClass, provisioners []string) (errs field.ErrorList) {
	if !slices.Contains(provisioners, v.Provisioner) {
		errs = append(errs, field.NotSupported(field.NewPath("provisioner"), v.Provisioner, provisioners))
	}
	for key := range v.Parameters {
		if NamesSecret(key) {
			errs = append(errs, field.Forbidden(field.NewPath("parameters").Key(key), "it would name a secret of the host; leave it out"))
		}
	}
	for name, set := range map[string]bool{"mountOptions": len(v.MountOptions) > 0, "allowedTopologies": len(v.AllowedTopologies) > 0} {
		if set {
			errs = append(errs, field.Forbidden(field.NewPath(name), "it is carried out by the host's nodes; remove the field"))
		}
	}
	if ptr.Deref(v.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete) != corev1.PersistentVolumeReclaimDelete {
		errs = append(errs, field.Forbidden(field.NewPath("reclaimPolicy"), fmt.Sprintf("%s would leave volumes on the host that no space has; use Delete", *v.ReclaimPolicy)))
	}
	return errs
}

// NamesSecret reports whether a driver's parameter with this key names a secret, such as
// "csi.storage.k8s.io/provisioner-secret-name" or "adminSecretNamespace".
func NamesSecret(key string) bool { return strings.Contains(strings.ToLower(key), "secret") }

// ExportedStorageClass returns the host object of a tenant's class that has passed [CheckStorageClass]. It is never the
// default class of the host.
func (s Space) ExportedStorageClass(v *storagev1.StorageClass) *storagev1.StorageClass {
	p := v.DeepCopy()
	return &storagev1.StorageClass{
		ObjectMeta: s.ClusterMeta(v), Provisioner: p.Provisioner, Parameters: p.Parameters, ReclaimPolicy: p.ReclaimPolicy,
		AllowVolumeExpansion: p.AllowVolumeExpansion, VolumeBindingMode: p.VolumeBindingMode,
	}
}

// PushStorageClass copies the mutable fields of a class to have. It reports whether anything differed.
func PushStorageClass(want, have *storagev1.StorageClass) bool {
	changed := PushMeta(want, have)
	if _, is := have.Annotations[annotationDefaultClass]; is {
		delete(have.Annotations, annotationDefaultClass)
		changed = true
	}
	if !equality.Semantic.DeepEqual(want.AllowVolumeExpansion, have.AllowVolumeExpansion) {
		have.AllowVolumeExpansion, changed = want.AllowVolumeExpansion, true
	}
	return changed
}

// OtherStorage reports whether immutable fields differ, so that the class must be recreated.
func OtherStorage(want, have *storagev1.StorageClass) bool {
	return want.Provisioner != have.Provisioner || !equality.Semantic.DeepEqual(want.Parameters, have.Parameters) ||
		!equality.Semantic.DeepEqual(want.ReclaimPolicy, have.ReclaimPolicy) || !equality.Semantic.DeepEqual(want.VolumeBindingMode, have.VolumeBindingMode)
}
