// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/volume"
)

// VolumesMessage is what a host answers to a volume that [Volume] does not allow.
const VolumesMessage = "a space's volumes may have only drivers and handles that the admin allows"

const ofSpace = "object.metadata.labels['" + translate.LabelSpace + "']"

// Volume is an expression that reports whether a rule allows the handle of a space's
// volume. Its label, which holds the name of the space, has been compared with the
// account's.
func Volume(rules []resources.VolumeRule) string {
	var allowed []string
	for _, r := range rules {
		prefix := strings.ReplaceAll(r.Prefix, resources.SpacePlaceholder, "' + "+ofSpace+" + '")
		allowed = append(allowed, "object.spec.csi.driver == '"+r.Driver+"' && object.spec.csi.volumeHandle.startsWith('"+prefix+"')")
	}
	return "has(object.spec.csi) && (" + strings.Join(allowed, " || ") + ")"
}

// volumes has each volume be for one claim of the space, have a handle that means
// what it begins with, and leave its data alone when it is deleted.
func volumes() admissionv1.Validation {
	return Refuse("a space's volumes need a claim of the space as claimRef, Retain as reclaim policy, a plain volumeHandle, and no class", about("persistentvolumes",
		"has(object.spec.csi) && "+atMost("size(object.spec.csi.volumeHandle)", volume.MaxHandle)+
			" && object.spec.csi.volumeHandle.matches('"+volume.HandleForm+"') && !object.spec.csi.volumeHandle.contains('..')"+
			" && object.spec.csi.?fsType.orValue('') in "+quoted(append([]string{""}, volume.FileSystems()...)...)+
			" && object.spec.?claimRef.?kind.orValue('') == 'PersistentVolumeClaim'"+
			" && object.spec.claimRef.?namespace.orValue('') == '"+translate.HostNamespacePrefix+"' + "+ofSpace+
			" && object.spec.claimRef.?name.orValue('').contains('--')"+
			" && object.spec.?persistentVolumeReclaimPolicy.orValue('') == 'Retain' && object.spec.?storageClassName.orValue('') == ''"))
}
