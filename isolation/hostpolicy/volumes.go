// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"fmt"
	"strings"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/volume"
)

// VolumesMessage is what a host answers to a volume that [Volume] does not allow.
const VolumesMessage = "a space's volumes may have only drivers and handles that the admin allows, a claim of the space as claimRef, Retain as reclaim policy, and no class"

// Volume is an expression that reports whether a volume of a space's own has a
// handle that a rule allows, and is for a claim of the space. Its label, which holds
// the name of the space, has been compared with the account's.
func Volume(rules []resources.VolumeRule) string {
	const space = "object.metadata.labels['" + translate.LabelSpace + "']"
	var allowed []string
	for _, r := range rules {
		prefix := strings.ReplaceAll(r.Prefix, resources.SpacePlaceholder, "' + "+space+" + '")
		allowed = append(allowed, "object.spec.csi.driver == '"+r.Driver+"' && object.spec.csi.volumeHandle.startsWith('"+prefix+"')")
	}
	return "has(object.spec.csi) && (" + strings.Join(allowed, " || ") + ")" +
		fmt.Sprintf(" && size(object.spec.csi.volumeHandle) <= %d", volume.MaxHandle) +
		" && object.spec.csi.volumeHandle.matches('" + volume.HandleForm + "') && !object.spec.csi.volumeHandle.contains('..')" +
		" && object.spec.csi.?fsType.orValue('') in " + quoted(append([]string{""}, volume.FileSystems()...)...) +
		" && object.spec.?claimRef.?kind.orValue('') == 'PersistentVolumeClaim'" +
		" && object.spec.claimRef.?namespace.orValue('') == '" + translate.HostNamespacePrefix + "' + " + space +
		" && object.spec.claimRef.?name.orValue('').contains('--')" +
		" && object.spec.?persistentVolumeReclaimPolicy.orValue('') == 'Retain' && object.spec.?storageClassName.orValue('') == ''"
}
