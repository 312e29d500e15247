// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import "github.com/berth-dev/berth/translate/workloadidentity"

// identityAnnotation is an expression about a key k of an annotation of service accounts: by these, a cloud gives pods an identity. The
// entries of the list are as [workloadidentity.Rules.Strings] has them.
func identityAnnotation() string {
	const value = "object.metadata.annotations[k]"
	// Most entries are about other keys, and what compares the whole value costs more.
	return atMost("size("+value+")", workloadidentity.MaxValue) + " && " + value + ".matches('" + workloadidentity.ValuePattern + "') && " +
		"variables.identities.exists(e, e.startsWith(k + '=') && (e == k + '=' + " + value + " || " +
		"e.endsWith('*') && !" + value + ".contains('" + workloadidentity.Upward + "') && (k + '=' + " + value + ").startsWith(e.substring(0, size(e) - 1))))"
}

// identityLabel is an expression about a key k of a label of pods that a webhook of the cloud asks for.
func identityLabel() string {
	return says("identities", "('"+workloadidentity.LabelPrefix+"' + k + '=' + object.metadata.labels[k])")
}
