// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/translate"
)

// Classes is about the classes and volumes that tenants make, which are in no
// namespace. What of their values an admin allows is for others to add.
func Classes() []admissionv1.Validation {
	return []admissionv1.Validation{
		Refuse("a space's account may write only the space's own classes and volumes, whose names begin with the name of the space", "[object, oldObject].all(o, o == null || "+
			"request.userInfo.username == 'system:serviceaccount:"+translate.HostNamespacePrefix+"' + o.metadata.?labels['"+translate.LabelSpace+"'].orValue('') + ':"+syncer.ServiceAccount+"' && "+
			"o.metadata.name.startsWith(o.metadata.labels['"+translate.LabelSpace+"'] + '"+translate.ClusterSeparator+"'))"),
	}
}

// ClassFields has classes and volumes consist of the fields that translate writes.
func ClassFields() []admissionv1.Validation {
	only := func(resource, fields, spec string) admissionv1.Validation {
		holds := parse("apiVersion kind metadata "+fields).only("dyn(object)", "oldObject != null && f in dyn(oldObject) && dyn(oldObject)[f] == dyn(object)[f]")
		if spec != "" {
			holds += " && " + parse(spec).only("dyn(object.spec)", keptIn("object.spec"))
		}
		return Refuse(OnlyFields+resource+": see docs/reference/host-access.md", about(resource, holds))
	}
	labels, annotations := ownLabels(), "k.startsWith('"+translate.Domain+"/')"
	// Upstream's admission protects volumes by a finalizer from the start.
	finalizers := "request.resource.resource == 'persistentvolumes' && f == 'kubernetes.io/pv-protection'"
	// A class or a volume ends with the space's namespace.
	owners := "f == 'ownerReferences' && size(object.metadata.ownerReferences) == 1 && object.metadata.ownerReferences.all(o, o.apiVersion == 'v1' && o.kind == 'Namespace' && " +
		"o.name == '" + translate.HostNamespacePrefix + "' + object.metadata.labels['" + translate.LabelSpace + "'] && !o.?blockOwnerDeletion.orValue(false))"
	return append(onlyIn(labels, annotations, finalizers, owners, false), volumes(),
		only("priorityclasses", "value preemptionPolicy", ""),
		only("storageclasses", "provisioner parameters reclaimPolicy allowVolumeExpansion volumeBindingMode", ""),
		only("persistentvolumes", "spec status", "capacity accessModes volumeMode persistentVolumeReclaimPolicy storageClassName csi{driver volumeHandle readOnly fsType} "+
			"claimRef{apiVersion kind namespace name:own uid resourceVersion}"))
}
