// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate/workloadidentity"
)

func identitiesOf(spec []v1alpha1.WorkloadIdentity) (rules workloadidentity.Rules) {
	for _, identity := range spec {
		rule := workloadidentity.Rule{Annotation: identity.Annotation, Values: identity.Values}
		for key, value := range identity.PodLabels {
			if rule.PodLabels == nil {
				rule.PodLabels = map[string]string{}
			}
			rule.PodLabels[key] = string(value)
		}
		rules = append(rules, rule)
	}
	return rules
}

// checkIdentities rejects identities of clouds for spaces whose pods have no account of their own on the host: they would run without the
// identity that their service account has.
func (s *Settings) checkIdentities(path *field.Path) field.ErrorList {
	if len(s.identities) == 0 || s.sync.On(resources.ServiceAccounts) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path.Child("workloadIdentity"),
		`the space's pods have no service accounts of their own on the host; set the sync option serviceaccounts to "on" in spaceDefaults.sync of the platform's configuration, or remove workloadIdentity`)}
}
