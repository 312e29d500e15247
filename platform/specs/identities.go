// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
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
// identity that their service account has. It also rejects labels of pods that pods of other spaces can have, whatever their service
// accounts are. reserved are those of the configuration.
func (s *Settings) checkIdentities(reserved []string, path *field.Path) (errs field.ErrorList) {
	if len(s.identities) == 0 {
		return nil
	}
	path = path.Child("workloadIdentity")
	if n := len(s.identities); n > workloadidentity.MaxRules {
		errs = append(errs, field.Invalid(path, n, fmt.Sprintf("a space has %d entries at most, with those of spaceDefaults of the platform's configuration; remove some", workloadidentity.MaxRules)))
	}
	if !s.sync.On(resources.ServiceAccounts) {
		errs = append(errs, field.Forbidden(path,
			`the space's pods have no service accounts of their own on the host; set the sync option serviceaccounts to "on" in spaceDefaults.sync of the platform's configuration, or remove workloadIdentity`))
	}
	objects := translate.Settings{ReservedLabels: reserved}
	for i := range s.identities {
		for _, key := range slices.Sorted(maps.Keys(s.identities[i].PodLabels)) {
			if !objects.ReservesLabel(key) {
				errs = append(errs, field.Forbidden(path.Index(i).Child("podLabels").Key(key),
					fmt.Sprintf("pods of other spaces may have the label %s on the host, too; add its domain to reservedLabels of the platform's configuration", key)))
			}
		}
	}
	return errs
}
