// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/translate"
)

// configs keeps an account from lasting longer, or becoming more, than what Berth
// poses as.
func configs() []admissionv1.Validation {
	return []admissionv1.Validation{
		Refuse("a space's volume snapshots may have no spec.source.volumeSnapshotContentName: name a claim of the space in persistentVolumeClaimName",
			about("volumesnapshots", "!has(object.spec.source.volumeSnapshotContentName)")),
		Refuse("a space's secrets may not have the type kubernetes.io/service-account-token, for which the host issues a token",
			about("secrets", "object.?type.orValue('') != 'kubernetes.io/service-account-token'")),
	}
}

// claims has the host provision a volume for each claim, as translate.CheckClaim
// has it, or bind a volume of the space's own. A claim without a class, which the
// host's default would have by now, would get any volume that was made there by hand.
func claims() []admissionv1.Validation {
	const own = "('" + translate.HostNamespacePrefix + "' + object.spec.?volumeName.orValue('')).startsWith(request.namespace + '" + translate.ClusterSeparator + "')"
	return []admissionv1.Validation{
		Refuse("a space's claims may not choose a volume that is not the space's own: they may have no other spec.volumeName, no selector and no volumeAttributesClassName, and need a storageClassName",
			about("persistentvolumeclaims", "("+kept("spec.volumeName")+" || "+own+") && "+kept("spec.selector")+" && "+kept("spec.volumeAttributesClassName")+" && "+
				"("+own+" ? object.spec.?storageClassName.orValue('-') == '' : "+
				"object.spec.?storageClassName.orValue('') != '' || oldObject != null && oldObject.spec.?storageClassName == object.spec.?storageClassName)")),
		Refuse("a space's claims may copy claims and snapshots of the space only: spec.dataSourceRef must name a PersistentVolumeClaim or VolumeSnapshot and no namespace",
			about("persistentvolumeclaims", "!has(object.spec.dataSourceRef) || object.spec.dataSourceRef.?namespace.orValue('') == '' && "+
				"(object.spec.dataSourceRef.kind == 'PersistentVolumeClaim' ? object.spec.dataSourceRef.?apiGroup.orValue(null) == null : "+
				"object.spec.dataSourceRef.kind == 'VolumeSnapshot' && object.spec.dataSourceRef.?apiGroup.orValue(null) == 'snapshot.storage.k8s.io')")),
	}
}

// budgets has disruption budgets be of the form that translate.PushBudget gives them.
// It can't bound the number: it does not know how many pods there are.
func budgets() []admissionv1.Validation {
	return []admissionv1.Validation{Refuse("a space's disruption budgets need a number as spec.minAvailable, AlwaysAllow as unhealthyPodEvictionPolicy, and Berth's selector",
		about("poddisruptionbudgets", "!has(object.spec.maxUnavailable) && type(object.spec.?minAvailable.orValue('')) == int && "+
			"object.spec.?unhealthyPodEvictionPolicy.orValue('') == 'AlwaysAllow' && "+
			"object.spec.?selector.?matchLabels[?'"+translate.LabelBudget+"'].orValue('') == object.metadata.name"))}
}
