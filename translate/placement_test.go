// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
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
			refused: "spec.nodeSelector[rack]: Forbidden: nodes are hidden in a space, except for the labels disk, pool",
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
		"Linux": {
			reason: "many charts have it, and it tells nothing", selector: map[string]string{corev1.LabelOSStable: "linux"},
			affinity: required(needs(corev1.LabelOSStable, corev1.NodeSelectorOpIn, "linux")), want: map[string]string{corev1.LabelOSStable: "linux"},
		},
		"Linux, where the admin's nodes have another system": {
			reason: "one map can't hold both", where: translate.Placement{Selector: map[string]string{corev1.LabelOSStable: "windows"}},
			selector: map[string]string{corev1.LabelOSStable: "linux"}, refused: "spec.nodeSelector[kubernetes.io/os]: Forbidden: pods of this space run on nodes with kubernetes.io/os=windows only",
		},
		"another system": {
			reason: "it probes what nodes are like", selector: map[string]string{corev1.LabelOSStable: "windows"}, refused: "spec.nodeSelector[kubernetes.io/os]: Forbidden",
		},
		"Linux or another system": {
			reason: "it probes what nodes are like", affinity: required(needs(corev1.LabelOSStable, corev1.NodeSelectorOpIn, "linux", "windows")),
			refused: "spec.affinity.nodeAffinity: Forbidden",
		},
		"no Linux": {
			reason: "it probes what nodes are like", affinity: required(needs(corev1.LabelOSStable, corev1.NodeSelectorOpNotIn, "linux")),
			refused: "spec.affinity.nodeAffinity: Forbidden",
		},
		"a label where none is for tenants": {
			reason: "refused by default", selector: map[string]string{"disk": "ssd"}, refused: "spec.nodeSelector[disk]: Forbidden: nodes are hidden in a space; remove the field",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := sample.PlainPod()
			v.Spec.NodeSelector, v.Spec.Affinity = tc.selector, tc.affinity
			errs := tc.where.Check(&v.Spec)
			if (tc.refused == "") != (len(errs) == 0) || tc.refused != "" && !strings.Contains(errs.ToAggregate().Error(), tc.refused) {
				t.Errorf("%s: got %v, want %q", tc.reason, errs, tc.refused)
			}
			host := pod.ToHost(sample.Demo(), v, pod.Surroundings{})
			if host.Spec.NodeSelector != nil || host.Spec.Affinity != nil && host.Spec.Affinity.NodeAffinity != nil {
				t.Fatalf("%s: a host pod that was not placed chooses nodes", tc.reason)
			}
			if tc.refused != "" {
				return
			}
			if errs := tc.where.Place(v, host, hostNode); len(errs) > 0 {
				t.Fatalf("%s: %v", tc.reason, errs)
			}
			if diff := cmp.Diff(tc.want, host.Spec.NodeSelector); diff != "" {
				t.Errorf("%s: the host pod's selector: -want +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.affinity, host.Spec.Affinity); diff != "" {
				t.Errorf("%s: the host pod's affinity: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// hostNode knows the space's one node that these tests speak of.
func hostNode(alias string) (string, bool) {
	return "host-node-1", alias == "node-1"
}

func byNode(op corev1.NodeSelectorOperator, key string, nodes ...string) *corev1.Affinity {
	return required(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: nodes}}})
}

// M1, N2: where a pod may name a node, as a DaemonSet's do, it names one of the
// space's, and gets the host's; any other name is refused, not passed on.
func TestPodsNameNodesOfTheirSpace(t *testing.T) {
	where := translate.Placement{Selector: map[string]string{"pool": "tenants"}, ByName: true}
	if got, want := where.String(), "fields:metadata.name,pool=tenants"; got != want {
		t.Errorf("the host is told %q, want %q", got, want)
	}
	preferred := func(node string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Weight: 1, Preference: byNode(corev1.NodeSelectorOpIn, "metadata.name", node).NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]},
		}}}
	}
	both := byNode(corev1.NodeSelectorOpIn, "metadata.name", "node-1")
	both.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions = needs("rack", corev1.NodeSelectorOpExists).MatchExpressions
	hostname := func(nodes ...string) *corev1.Affinity {
		return required(needs(corev1.LabelHostname, corev1.NodeSelectorOpIn, nodes...))
	}
	for name, tc := range map[string]struct {
		reason           string
		affinity, want   *corev1.Affinity
		refused, unknown string
	}{
		"its label":          {"a virtual node's label holds its name", hostname("node-1"), byNode(corev1.NodeSelectorOpIn, "metadata.name", "host-node-1"), "", ""},
		"the host's label":   {"N1", hostname("host-node-1"), nil, "", `nodeSelectorTerms[0].matchFields[0].values[0]: Forbidden: node "host-node-1"`},
		"one of two labels":  {"a field takes one value", hostname("node-1", "node-2"), nil, "matchExpressions[0].key: Forbidden", ""},
		"not its label":      {"a field may not be compared so", required(needs(corev1.LabelHostname, corev1.NodeSelectorOpNotIn, "node-1")), nil, "matchExpressions[0].key: Forbidden", ""},
		"its own":            {"as a DaemonSet's do", byNode(corev1.NodeSelectorOpIn, "metadata.name", "node-1"), byNode(corev1.NodeSelectorOpIn, "metadata.name", "host-node-1"), "", ""},
		"its own, preferred": {"it is the same", preferred("node-1"), preferred("host-node-1"), "", ""},
		"the host's":         {"N1", byNode(corev1.NodeSelectorOpIn, "metadata.name", "host-node-1"), nil, "", `nodeSelectorTerms[0].matchFields[0].values[0]: Forbidden: node "host-node-1"`},
		"one of two terms": {"each is looked at", required(
			byNode(corev1.NodeSelectorOpIn, "metadata.name", "node-1").NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0],
			byNode(corev1.NodeSelectorOpIn, "metadata.name", "node-2").NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]),
			nil, "", `nodeSelectorTerms[1].matchFields[0].values[0]: Forbidden: node "node-2"`},
		"preferred, of others": {"where it ends up would tell", preferred("host-node-1"), nil, "", "preference.matchFields[0].values[0]: Forbidden"},
		"all but one":          {"it is of no use, and a name all the same", byNode(corev1.NodeSelectorOpNotIn, "metadata.name", "node-1"), nil, "matchFields[0]: Forbidden: a node of the space is named by", ""},
		"several":              {"there is one", byNode(corev1.NodeSelectorOpIn, "metadata.name", "node-1", "node-1"), nil, "matchFields[0]: Forbidden", ""},
		"another field":        {"Kubernetes may have more some day", byNode(corev1.NodeSelectorOpIn, "metadata.uid", "node-1"), nil, "matchFields[0]: Forbidden", ""},
		"a label as well":      {"those are limited as ever", both, nil, "matchExpressions[0].key: Forbidden", ""},
		"a label of that name": {"it is no field", required(needs("metadata.name", corev1.NodeSelectorOpExists)), nil, "matchExpressions[0].key: Forbidden", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := sample.PlainPod()
			v.Spec.Affinity = tc.affinity
			before := v.DeepCopy()
			errs := where.Check(&v.Spec)
			if (tc.refused == "") != (len(errs) == 0) || tc.refused != "" && !strings.Contains(errs.ToAggregate().Error(), tc.refused) {
				t.Fatalf("%s: got %v, want %q", tc.reason, errs, tc.refused)
			}
			if tc.refused != "" {
				return
			}
			host := pod.ToHost(sample.Demo(), v, pod.Surroundings{})
			errs = where.Place(v, host, hostNode)
			if (tc.unknown == "") != (len(errs) == 0) || tc.unknown != "" && !strings.Contains(errs.ToAggregate().Error(), tc.unknown) {
				t.Fatalf("%s: got %v, want %q", tc.reason, errs, tc.unknown)
			}
			if tc.unknown != "" {
				return
			}
			if diff := cmp.Diff(tc.want, host.Spec.Affinity); diff != "" {
				t.Errorf("%s: the host pod's affinity: -want +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, v); diff != "" {
				t.Errorf("the space's pod was changed: %s", diff)
			}
		})
	}
}

// N2: a node selector on kubernetes.io/hostname names a node, too. It holds together
// with all that the pod asks for besides.
func TestANodeSelectorNamesANodeOfTheSpace(t *testing.T) {
	where := translate.Placement{Selector: map[string]string{"pool": "tenants"}, Labels: []string{"disk"}, ByName: true}
	v := sample.PlainPod()
	v.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-1", "disk": "ssd"}
	v.Spec.Affinity = required(needs("disk", corev1.NodeSelectorOpExists), needs("disk", corev1.NodeSelectorOpNotIn, "hdd"))
	before := v.DeepCopy()
	if errs := where.Check(&v.Spec); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	host := pod.ToHost(sample.Demo(), v, pod.Surroundings{})
	if errs := where.Place(v, host, hostNode); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	if diff := cmp.Diff(map[string]string{"pool": "tenants", "disk": "ssd"}, host.Spec.NodeSelector); diff != "" {
		t.Errorf("the host pod's node selector: -want +got:\n%s", diff)
	}
	want := v.Spec.Affinity.DeepCopy()
	for i := range want.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		want.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[i].MatchFields =
			byNode(corev1.NodeSelectorOpIn, "metadata.name", "host-node-1").NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields
	}
	if diff := cmp.Diff(want, host.Spec.Affinity); diff != "" {
		t.Errorf("the host pod's affinity: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(before, v); diff != "" {
		t.Errorf("the space's pod was changed: %s", diff)
	}
	if diff := cmp.Diff([]string{"node-1", "node-1"}, translate.NamedNodes(v)); diff != "" {
		t.Errorf("the nodes that it names: -want +got:\n%s", diff)
	}
	if errs := (translate.Placement{}).Check(&corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelHostname: "node-1"}}); len(errs) == 0 {
		t.Error("a node may be named where nodes are hidden")
	}
}

// M2, N1: which of the host's nodes are a space's, and what it learns of each.
func TestASpaceSeesTheNodesThatAreForIt(t *testing.T) {
	where := translate.Placement{Selector: map[string]string{"pool": "tenants"}, Labels: []string{"disk", "rack"}, Tolerations: []corev1.Toleration{
		{Key: "tenant", Value: "a", Effect: corev1.TaintEffectNoSchedule}, {Key: "own", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	}}
	taint := func(key string, effect corev1.TaintEffect) []corev1.Taint {
		return []corev1.Taint{{Key: key, Value: "a", Effect: effect}}
	}
	for name, tc := range map[string]struct {
		reason string
		pool   string
		taints []corev1.Taint
		is     bool
		closed corev1.TaintEffect
	}{
		"one of the pool":    {"it is for the space", "tenants", nil, true, ""},
		"one of another":     {"its pods don't go there", "system", nil, false, corev1.TaintEffectNoExecute},
		"one of no pool":     {"its pods don't go there", "", nil, false, corev1.TaintEffectNoExecute},
		"cordoned":           {"it is to be empty some day, and comes back", "tenants", taint(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule), true, corev1.TaintEffectNoSchedule},
		"not ready":          {"it may be again", "tenants", taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute), true, corev1.TaintEffectNoSchedule},
		"under pressure":     {"a host's admission adds no toleration of it by default", "tenants", taint(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule), true, corev1.TaintEffectNoSchedule},
		"its own":            {"its pods tolerate the taint", "tenants", taint("tenant", corev1.TaintEffectNoSchedule), true, ""},
		"its own, cleared":   {"its pods tolerate the taint", "tenants", taint("own", corev1.TaintEffectNoExecute), true, ""},
		"another's effect":   {"its pods don't tolerate the taint", "tenants", taint("tenant", corev1.TaintEffectNoExecute), false, corev1.TaintEffectNoSchedule},
		"set apart":          {"it is for others", "tenants", taint("node-role.kubernetes.io/control-plane", corev1.TaintEffectNoSchedule), false, corev1.TaintEffectNoSchedule},
		"cleared":            {"it is for others", "tenants", taint("gpu", corev1.TaintEffectNoExecute), false, corev1.TaintEffectNoSchedule},
		"rather for others":  {"its pods may go there", "tenants", taint("gpu", corev1.TaintEffectPreferNoSchedule), true, ""},
		"shut down by cloud": {"who knows whether it returns", "tenants", taint("node.cloudprovider.kubernetes.io/shutdown", corev1.TaintEffectNoSchedule), false, corev1.TaintEffectNoSchedule},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host-node-1", UID: "u", Labels: map[string]string{"disk": "ssd", "other": "label"}}}
			node.Spec.ProviderID, node.Status.NodeInfo.MachineID, node.Spec.Taints = "secret", "secret", tc.taints
			if tc.pool != "" {
				node.Labels["pool"] = tc.pool
			}
			node = translate.TrimNode(node)
			if strings.Contains(node.String(), "secret") {
				t.Errorf("more is kept of it than is needed: %v", node)
			}
			view, is := where.View(node)
			want := translate.NodeView{Labels: map[string]string{"disk": "ssd"}, Closed: tc.closed}
			if tc.pool != "tenants" { // what it is like is not the space's business
				want.Labels = nil
			}
			if is != tc.is || !view.Equal(want) {
				t.Errorf("%s: is for the space: %t, as %v, want %t, as %v", tc.reason, is, view, tc.is, want)
			}
		})
	}
}
