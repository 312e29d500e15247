// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package unmetered

import "k8s.io/component-base/metrics"

// Names returns the labels, by metric, whose values are names that tenants choose. A process keeps a series for each for good.
func Names() map[string][]string {
	const (
		admission  = "apiserver_admission_"
		condition  = admission + "match_condition_"
		webhook    = admission + "webhook_"
		validating = "apiserver_validating_admission_policy_"
		mutating   = "apiserver_mutating_admission_policy_"
	)
	policy := []string{"policy", "policy_binding"}
	statefulSet := []string{"statefulset_namespace", "statefulset_name"}
	return map[string][]string{
		condition + "evaluation_errors_total":                     {"name"},
		condition + "evaluation_seconds":                          {"name"},
		condition + "exclusions_total":                            {"name"},
		webhook + "admission_duration_seconds":                    {"name"},
		webhook + "fail_open_count":                               {"name"},
		webhook + "rejection_count":                               {"name"},
		webhook + "request_total":                                 {"name"},
		validating + "check_total":                                policy,
		validating + "check_duration_seconds":                     policy,
		mutating + "check_total":                                  policy,
		mutating + "check_duration_seconds":                       policy,
		"apiserver_crd_conversion_webhook_duration_seconds":       {"crd_name", "from_version", "to_version"},
		"statefulset_controller_statefulset_max_unavailable":      statefulSet,
		"statefulset_controller_statefulset_unavailable_replicas": statefulSet,
	}
}

// hideNames has all names count as one.
func hideNames() {
	allowed := map[string]string{}
	for metric, labels := range Names() {
		for _, label := range labels {
			allowed[metric+","+label] = "" // which is no name
		}
	}
	metrics.SetLabelAllowList(allowed)
}
