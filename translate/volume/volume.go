// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volume has the pure functions between the volumes that a tenant creates in its space, and those of the host.
package volume

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
)

// IsTenants reports whether the tenant created a volume in the space.
func IsTenants(v *corev1.PersistentVolume) bool {
	return v.Labels[translate.LabelManagedBy] != translate.ManagedBy
}

// Handles says how the volume handles of a space begin that a driver has for it.
type Handles struct{ Driver, Prefix string }

// HandleForm is the form of the volume handles of tenants. A driver may read a handle as a path or as a URL, so there
// are no characters by which another handle could mean the same, and no "..".
const HandleForm = `^[A-Za-z0-9/][A-Za-z0-9._:/#@~-]*$`

// MaxHandle is the maximum length of a volume handle of a tenant, in bytes.
const MaxHandle = 512

var handleForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(HandleForm) })

// FileSystems returns the types of file systems of tenants' own volumes.
func FileSystems() []string { return []string{"ext3", "ext4", "xfs", "btrfs"} }

// Check returns an error for each field of a tenant's volume that could lead to another volume than those with
// the handles, or that the host's nodes carry out.
func Check(v *corev1.PersistentVolume, handles []Handles) (errs field.ErrorList) {
	path := field.NewPath("spec")
	csi := v.Spec.CSI
	if csi == nil {
		return field.ErrorList{field.Required(path.Child("csi"), "only volumes of CSI drivers can be used from a space")}
	}
	errs = checkHandle(path.Child("csi"), csi, handles)
	for name, set := range map[string]bool{
		"controllerPublishSecretRef": csi.ControllerPublishSecretRef != nil, "nodeStageSecretRef": csi.NodeStageSecretRef != nil,
		"nodePublishSecretRef": csi.NodePublishSecretRef != nil, "controllerExpandSecretRef": csi.ControllerExpandSecretRef != nil,
		"nodeExpandSecretRef": csi.NodeExpandSecretRef != nil,
	} {
		if set {
			errs = append(errs, field.Forbidden(path.Child("csi", name), "it would name a secret of the host; remove the field"))
		}
	}
	if len(csi.VolumeAttributes) > 0 {
		errs = append(errs, field.Forbidden(path.Child("csi", "volumeAttributes"), "a driver could find another volume by them; remove the field"))
	}
	if csi.FSType != "" && !slices.Contains(FileSystems(), csi.FSType) {
		errs = append(errs, field.NotSupported(path.Child("csi", "fsType"), csi.FSType, FileSystems()))
	}
	if policy := v.Spec.PersistentVolumeReclaimPolicy; policy != corev1.PersistentVolumeReclaimRetain {
		errs = append(errs, field.NotSupported(path.Child("persistentVolumeReclaimPolicy"), policy,
			[]corev1.PersistentVolumeReclaimPolicy{corev1.PersistentVolumeReclaimRetain}))
	}
	if len(v.Spec.MountOptions) > 0 {
		errs = append(errs, field.Forbidden(path.Child("mountOptions"), "they are carried out by the host's nodes; remove the field"))
	}
	if v.Spec.NodeAffinity != nil {
		errs = append(errs, field.Forbidden(path.Child("nodeAffinity"), "nodes are hidden in a space; remove the field"))
	}
	if ptr.Deref(v.Spec.VolumeAttributesClassName, "") != "" {
		errs = append(errs, field.Forbidden(path.Child("volumeAttributesClassName"), "the classes of the host are not for spaces; remove the field"))
	}
	return errs
}

func checkHandle(path *field.Path, csi *corev1.CSIPersistentVolumeSource, handles []Handles) field.ErrorList {
	var drivers, begin []string
	for _, h := range handles {
		drivers = append(drivers, h.Driver)
		if h.Driver == csi.Driver {
			begin = append(begin, h.Prefix)
		}
	}
	handle := csi.VolumeHandle
	path, driver := path.Child("volumeHandle"), path.Child("driver")
	switch {
	case len(begin) == 0:
		return field.ErrorList{field.NotSupported(driver, csi.Driver, drivers)}
	case !slices.ContainsFunc(begin, func(prefix string) bool { return strings.HasPrefix(handle, prefix) }):
		return field.ErrorList{field.Invalid(path, handle, `the handles of this space begin with "`+strings.Join(begin, `" or "`)+`"; use one of these`)}
	case len(handle) > MaxHandle:
		return field.ErrorList{field.TooLong(path, "", MaxHandle)}
	case !handleForm().MatchString(handle) || strings.Contains(handle, ".."):
		return field.ErrorList{field.Invalid(path, handle, `use letters, digits, and the characters . _ : / # @ ~ -, but not ".."`)}
	default:
		return nil
	}
}

// CheckClaim returns an error for each field of a claim that doesn't match the volume that it names, as the binder of
// a cluster would find.
func CheckClaim(v *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) (errs field.ErrorList) {
	path := field.NewPath("spec")
	mismatch := func(name string, value, has any) {
		errs = append(errs, field.Invalid(path.Child(name), value, fmt.Sprintf("volume %q has %v", volume.Name, has)))
	}
	if class := ptr.Deref(v.Spec.StorageClassName, ""); class != volume.Spec.StorageClassName {
		mismatch("storageClassName", class, fmt.Sprintf("the class %q", volume.Spec.StorageClassName))
	}
	if mode, has := ptr.Deref(v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem), ptr.Deref(volume.Spec.VolumeMode, corev1.PersistentVolumeFilesystem); mode != has {
		mismatch("volumeMode", mode, "the mode "+has)
	}
	for _, mode := range v.Spec.AccessModes {
		if !slices.Contains(volume.Spec.AccessModes, mode) {
			mismatch("accessModes", mode, volume.Spec.AccessModes)
		}
	}
	if asked, has := v.Spec.Resources.Requests.Storage(), volume.Spec.Capacity.Storage(); asked.Cmp(*has) > 0 {
		mismatch("resources", asked.String(), has.String())
	}
	if v.Spec.DataSource != nil || v.Spec.DataSourceRef != nil {
		errs = append(errs, field.Forbidden(path.Child("dataSourceRef"), "a claim that names a volume cannot be a copy; remove the field"))
	}
	return errs
}

// ForClaim makes a host claim one for the tenant's own volume that it names in the space. It requests the capacity of
// the volume, so that the quota of the space counts it, or what the claim asks for if capacity is nil. It has no class,
// because the tenant's classes are not on the host.
func ForClaim(s translate.Space, host *corev1.PersistentVolumeClaim, name string, capacity *resource.Quantity) {
	host.Spec.VolumeName, host.Spec.StorageClassName = s.ClusterName(name), ptr.To("")
	host.Spec.DataSourceRef = nil
	if capacity != nil {
		host.Spec.Resources = corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *capacity}}
	}
}

// ToHost returns the host object of a tenant's volume that has passed [Check], for the claim that it is
// bound to in the space. Nothing else on the host can bind it.
func ToHost(s translate.Space, v *corev1.PersistentVolume) *corev1.PersistentVolume {
	p := v.Spec.DeepCopy()
	return &corev1.PersistentVolume{
		ObjectMeta: s.ClusterMeta(v),
		Spec: corev1.PersistentVolumeSpec{
			Capacity: p.Capacity, AccessModes: p.AccessModes, VolumeMode: p.VolumeMode,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: p.CSI.Driver, VolumeHandle: p.CSI.VolumeHandle, ReadOnly: p.CSI.ReadOnly, FSType: p.CSI.FSType,
			}},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: s.HostNamespace(),
				Name: s.HostName(p.ClaimRef.Namespace, p.ClaimRef.Name, translate.LimitSubdomain),
			},
		},
	}
}

// Push copies the mutable fields of a tenant's volume to have. It reports whether anything differed. The
// size stays, because that of the host claim does, too. A volume that has been released by an earlier claim can be
// bound again.
func Push(want, have *corev1.PersistentVolume) bool {
	if tenant, ok := have.Labels[translate.LabelTenant]; ok { // the platform writes it
		want = want.DeepCopy()
		want.Labels[translate.LabelTenant] = tenant
	}
	changed := translate.PushMeta(want, have)
	spec := have.Spec.DeepCopy()
	spec.AccessModes, spec.PersistentVolumeReclaimPolicy = want.Spec.AccessModes, want.Spec.PersistentVolumeReclaimPolicy
	spec.StorageClassName, spec.MountOptions = "", nil
	ref, asked := spec.ClaimRef, want.Spec.ClaimRef
	if ref == nil || ref.Namespace != asked.Namespace || ref.Name != asked.Name || have.Status.Phase == corev1.VolumeReleased && ref.UID != "" {
		spec.ClaimRef = asked.DeepCopy()
	}
	if equality.Semantic.DeepEqual(*spec, have.Spec) {
		return changed
	}
	have.Spec = *spec
	return true
}

// NeedsRecreate reports whether immutable fields differ, so that the volume must be recreated.
func NeedsRecreate(want, have *corev1.PersistentVolume) bool {
	return !equality.Semantic.DeepEqual(want.Spec.PersistentVolumeSource, have.Spec.PersistentVolumeSource) ||
		ptr.Deref(want.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) != ptr.Deref(have.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}
