// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/translate"
)

// AccountPolicy is what the host holds the spaces' accounts to beyond
// [AccountRules]: RBAC grants kinds, and can't tell a tenant's network policy
// from a wall. It is for whoever holds such an account, and so trusts nothing
// that Berth does before it writes. Pods are [PodPolicy]'s.
func AccountPolicy() admissionv1.ValidatingAdmissionPolicySpec {
	return accountPolicy(func(resource string) bool { return !ofPods(resource) },
		whose("services/"+translate.DNSServiceName, "endpointslices/"+translate.DNSServiceName, "endpointslices/"+translate.APIEndpointsName),
		openings(), gateways(), identities(), volumes(), drains())
}

// openings keeps network policies, which add up, to what the walls let through
// (see translate.Everyone and Callers), and services to the space's own pods and addresses.
func openings() []admissionv1.Validation {
	// The one peer in other namespaces that may be let in: those that the admin has labelled.
	const callers = "has(p.namespaceSelector) && !has(p.podSelector) && size(p.namespaceSelector.?matchExpressions.orValue([])) == 0 && " +
		"p.namespaceSelector.?matchLabels.orValue({}) == {'" + translate.LabelReachesPods + "': 'true'}"
	var closed []string
	for _, block := range translate.Outside() {
		closed = append(closed, block.Except...)
	}
	return []admissionv1.Validation{
		refuse("a space's network policies may allow its own pods and public addresses only, and say whom they allow",
			about("networkpolicies", "(object.spec.?ingress.orValue([]).map(r, r.?from.orValue([]).filter(p, !("+callers+"))) + object.spec.?egress.orValue([]).map(r, r.?to.orValue([]))).all(peers, "+
				"size(peers) > 0 && peers.all(p, !has(p.namespaceSelector) && has(p.podSelector) != has(p.ipBlock) && "+
				"(!has(p.ipBlock) || "+quoted(closed...)+".all(c, !cidr(c).containsCIDR(p.ipBlock.cidr) && "+
				"(!cidr(p.ipBlock.cidr).containsCIDR(c) || p.ipBlock.?except.orValue([]).exists(e, cidr(e).containsCIDR(c)))))))")),
		refuse("a space's services may not claim addresses of the network, and those that are reached from outside need a selector",
			about("services", "size(object.spec.?externalIPs.orValue([])) == 0 && "+
				"(!(object.spec.?type.orValue('') in ['NodePort', 'LoadBalancer']) || size(object.spec.?selector.orValue({})) > 0)")),
		// The one that is allowed GKE itself puts on a service as it is made.
		refuse("a space's services may not choose their load balancer's address, nor annotate what is reached from outside",
			about("services", kept("spec.loadBalancerIP")+" && (!(object.spec.?type.orValue('') in ['NodePort', 'LoadBalancer']) || "+annotated("k == 'cloud.google.com/neg'")+")")),
	}
}

// identities keeps an account from lasting longer, or becoming more, than what
// Berth poses as.
func identities() []admissionv1.Validation {
	return []admissionv1.Validation{
		refuse("a space's volume snapshots may be of its own claims only",
			about("volumesnapshots", "!has(object.spec.source.volumeSnapshotContentName)")),
		refuse("a space's secrets may hold no token of a host's service account",
			about("secrets", "object.?type.orValue('') != 'kubernetes.io/service-account-token'")),
		refuse("a space's service accounts may get no annotation but Berth's: the host may take one for the right to an identity",
			about("serviceaccounts", annotated("false"))),
	}
}

// volumes has the host provision a volume for each claim, as translate.CheckClaim
// has it. A claim without a class, which the host's default would have by now,
// would get any volume that was made there by hand, and the annotations stand for
// fields.
func volumes() []admissionv1.Validation {
	const hosts = "['volume.beta.kubernetes.io/', 'volume.kubernetes.io/', 'pv.kubernetes.io/']"
	return []admissionv1.Validation{
		refuse("a space's claims may not choose a volume: no name, no selector, no attributes class, and none without a storage class",
			about("persistentvolumeclaims", kept("spec.volumeName")+" && "+kept("spec.selector")+" && "+kept("spec.volumeAttributesClassName")+" && "+
				"(object.spec.?storageClassName.orValue('') != '' || oldObject != null && oldObject.spec.?storageClassName == object.spec.?storageClassName) && "+
				annotated("!"+hosts+".exists(h, k.startsWith(h))"))),
		refuse("a space's claims may copy claims and snapshots of the space only",
			about("persistentvolumeclaims", "!has(object.spec.dataSourceRef) || object.spec.dataSourceRef.?namespace.orValue('') == '' && "+
				"(object.spec.dataSourceRef.kind == 'PersistentVolumeClaim' ? object.spec.dataSourceRef.?apiGroup.orValue(null) == null : "+
				"object.spec.dataSourceRef.kind == 'VolumeSnapshot' && object.spec.dataSourceRef.?apiGroup.orValue(null) == 'snapshot.storage.k8s.io')")),
	}
}

// drains has budgets be of the form that translate.PushBudget gives them. It can't
// bound the number: it does not know how many pods there are.
func drains() []admissionv1.Validation {
	return []admissionv1.Validation{refuse("a space's disruption budgets may hold back a number of pods, and none that is not ready",
		about("poddisruptionbudgets", "!has(object.spec.maxUnavailable) && type(object.spec.?minAvailable.orValue('')) == int && "+
			"object.spec.?unhealthyPodEvictionPolicy.orValue('') == 'AlwaysAllow'"))}
}
