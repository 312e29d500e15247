// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

const (
	// storageClassName is the default class of the host.
	storageClassName = "standard"
	// provisionerName is whom storage classes name for simulated volumes.
	provisionerName = "berth.dev/simulated"
)

// storageClass returns the default class: as that of a real cluster with local
// volumes, it binds a claim when a pod uses it.
func storageClass() *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:        storageClassName,
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner:       provisionerName,
		ReclaimPolicy:     ptr.To(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
}

// volumeNode returns the name of the node on which claim's volume goes: the one
// the scheduler selected, or any, if class binds at once. It is empty if the
// scheduler has yet to select one.
func volumeNode(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, nodes []node) string {
	selected := claim.Annotations[storagehelpers.AnnSelectedNode]
	if selected != "" || ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) != storagev1.VolumeBindingImmediate {
		return selected
	}
	hash := fnv.New32a()
	hash.Write([]byte(claim.UID))
	return nodes[hash.Sum32()%uint32(len(nodes))].name
}

// newVolume returns a volume for claim on the node of that name, prebound to
// the claim. Like a real local volume it can be used on that node only.
func newVolume(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, nodeName string) *corev1.PersistentVolume {
	name := volumeName(claim)
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Annotations: map[string]string{
				// By this the PV controller knows that deleting is not for it.
				storagehelpers.AnnDynamicallyProvisioned: provisionerName,
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName:              class.Name,
			PersistentVolumeReclaimPolicy: ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			MountOptions:                  class.MountOptions,
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage],
			},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1",
				Kind:       "PersistentVolumeClaim",
				Namespace:  claim.Namespace,
				Name:       claim.Name,
				UID:        claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: "/simulated/" + name},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key:      corev1.LabelHostname,
						Operator: corev1.NodeSelectorOpIn,
						Values:   []string{nodeName},
					}},
				}},
			}},
		},
	}
}

// volumeName returns the claim's name, cut if need be, and the first eight
// characters of its UID. So it begins as the claim's does, which is how names
// on the host tell the tenant.
func volumeName(claim *corev1.PersistentVolumeClaim) string {
	suffix := string(claim.UID)
	if len(suffix) > 8 {
		suffix = suffix[:8]
	}
	base := claim.Name
	if most := validation.DNS1123SubdomainMaxLength - len("-") - len(suffix); len(base) > most {
		base = strings.TrimRight(base[:most], "-.")
	}
	return base + "-" + suffix
}

// isReleased tells whether volume is a simulated one that is to be deleted:
// its claim is gone, and its policy is Delete.
func isReleased(volume *corev1.PersistentVolume) bool {
	return volume.Annotations[storagehelpers.AnnDynamicallyProvisioned] == provisionerName &&
		volume.Status.Phase == corev1.VolumeReleased &&
		volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete &&
		volume.DeletionTimestamp == nil
}
