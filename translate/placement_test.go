// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/translate"
)

func needs(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
}

func required(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

// M2: tenants choose nodes by the labels that are for them, and by nothing else;
// the admin's selector is always added.
func TestPodsRunWhereTheAdminSays(t *testing.T) {
	where := translate.Placement{Selector: map[string]string{"pool": "tenants"}, Labels: []string{"disk", "pool"}}
	byName := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}}}
	for name, tc := range map[string]struct {
		reason   string
		where    translate.Placement
		selector map[string]string
		affinity *corev1.Affinity
		refused  string // field, and what is to be done
		want     map[string]string
	}{
		"nothing asked":       {reason: "the admin's is always added", where: where, want: map[string]string{"pool": "tenants"}},
		"nothing said at all": {reason: "it is the scheduler's"},
		"a label for tenants": {
			reason: "limited to allowed labels", where: where, selector: map[string]string{"disk": "ssd"},
			want: map[string]string{"disk": "ssd", "pool": "tenants"},
		},
		"the admin's own": {
			reason: "it is the same", where: where, selector: map[string]string{"pool": "tenants"}, want: map[string]string{"pool": "tenants"},
		},
		"another than the admin's": {
			reason: "one map can't hold both", where: where, selector: map[string]string{"pool": "system"},
			refused: "spec.nodeSelector[pool]: Forbidden: pods of this space run on nodes with pool=tenants only",
		},
		"another label": {
			reason: "it probes what nodes are like", where: where, selector: map[string]string{"rack": "1"},
			refused: "spec.nodeSelector[rack]: Forbidden: nodes are hidden in a space, but for the labels disk, pool",
		},
		"a term of affinity": {
			reason: "it is limited alike", where: where, affinity: required(needs("disk", corev1.NodeSelectorOpNotIn, "hdd")), want: map[string]string{"pool": "tenants"},
		},
		"a term of another label": {
			reason: "each is looked at", where: where, affinity: required(needs("disk", corev1.NodeSelectorOpExists), needs("rack", corev1.NodeSelectorOpExists)),
			refused: "nodeSelectorTerms[1].matchExpressions[0].key: Forbidden",
		},
		"a preferred one": {
			reason: "where a pod ends up tells as much", where: where,
			affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
				{Weight: 1, Preference: needs("rack", corev1.NodeSelectorOpExists)},
			}}},
			refused: "preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key: Forbidden",
		},
		"a node by its name": {
			reason: "N1", where: where, affinity: required(byName), refused: "nodeSelectorTerms[0].matchFields: Forbidden",
		},
		"a label where none is for tenants": {
			reason: "refused by default", selector: map[string]string{"disk": "ssd"}, refused: "spec.nodeSelector[disk]: Forbidden: nodes are hidden in a space; remove the field",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := plainPod()
			v.Spec.NodeSelector, v.Spec.Affinity = tc.selector, tc.affinity
			errs := tc.where.Check(&v.Spec)
			if (tc.refused == "") != (len(errs) == 0) || tc.refused != "" && !strings.Contains(errs.ToAggregate().Error(), tc.refused) {
				t.Errorf("%s: got %v, want %q", tc.reason, errs, tc.refused)
			}
			host := demo().Pod(v, translate.Surroundings{})
			if host.Spec.NodeSelector != nil || host.Spec.Affinity != nil && host.Spec.Affinity.NodeAffinity != nil {
				t.Fatalf("%s: a host pod that was not placed chooses nodes", tc.reason)
			}
			if tc.refused != "" {
				return
			}
			tc.where.Place(v, host)
			if diff := cmp.Diff(tc.want, host.Spec.NodeSelector); diff != "" {
				t.Errorf("%s: the host pod's selector: -want +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.affinity, host.Spec.Affinity); diff != "" {
				t.Errorf("%s: the host pod's affinity: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
