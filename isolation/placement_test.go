// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/translate"
)

// M2: whoever holds a space's account puts pods on the space's nodes only, and
// chooses among them by the labels that are for its tenant only.
func TestTheHostHoldsAccountsToTheNodesOfTheirSpace(t *testing.T) {
	g, ctx := startPolicedHost(t), t.Context()
	place := func(where translate.Placement) {
		t.Helper()
		if err := isolation.Apply(ctx, g.admin, g.space, nil, isolation.PlacedBy(where)); err != nil {
			t.Fatal(err)
		}
	}
	on := func(labels map[string]string, change func(*corev1.PodSpec)) *corev1.Pod {
		pod := hostPod("mine--default--placed")
		pod.Spec.NodeSelector = labels
		if change != nil {
			change(&pod.Spec)
		}
		return pod
	}
	try := func(pod *corev1.Pod) error { return g.account.Create(ctx, pod.DeepCopy(), client.DryRunAll) }
	// Admission learns of the annotation from a watch.
	await := func(what string, pod *corev1.Pod, done func(error) bool) {
		t.Helper()
		var last error
		if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			last = try(pod)
			return done(last), nil
		}); err != nil {
			t.Fatalf("%s: %v", what, last)
		}
	}
	selecting := func(term corev1.NodeSelectorTerm) func(*corev1.PodSpec) {
		return func(p *corev1.PodSpec) {
			p.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}},
			}}
		}
	}
	preferring := func(term corev1.NodeSelectorTerm) func(*corev1.PodSpec) {
		return func(p *corev1.PodSpec) {
			p.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: term}},
			}}
		}
	}
	has := func(key string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpExists}}}
	}
	runs := func(operator corev1.NodeSelectorOperator, systems ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelOSStable, Operator: operator, Values: systems}}}
	}
	byName := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"host-node-1"}}}}
	pool := map[string]string{"pool": "tenants"}

	place(translate.Placement{Selector: pool, Labels: []string{"disk"}})
	await("a pod on the nodes of the space", on(pool, nil), func(err error) bool { return err == nil })
	await("a pod without them", on(nil, nil), apierrors.IsForbidden)
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		refused string
	}{
		"a label for tenants":            {on(map[string]string{"pool": "tenants", "disk": "ssd"}, nil), ""},
		"a term for tenants":             {on(pool, selecting(has("disk"))), ""},
		"a preference for tenants":       {on(pool, preferring(has("disk"))), ""},
		"nodes of others":                {on(map[string]string{"pool": "system"}, nil), "may not choose nodes"},
		"nothing":                        {on(nil, nil), "run on the space's nodes only"},
		"only what is for tenants":       {on(map[string]string{"disk": "ssd"}, nil), "run on the space's nodes only"},
		"another label":                  {on(map[string]string{"pool": "tenants", "rack": "1"}, nil), "may not choose nodes"},
		"another label, as the key":      {on(map[string]string{"pool": "tenants", "tenants": ""}, nil), "may not choose nodes"},
		"a term of another label":        {on(pool, selecting(has("rack"))), "may not choose nodes"},
		"a preference of another":        {on(pool, preferring(has("rack"))), "may not choose nodes"},
		"a node by its name":             {on(pool, selecting(byName)), "may not choose nodes"},
		"a preferred node, by its name":  {on(pool, preferring(byName)), "may not choose nodes"},
		"the admin's label for a choice": {on(pool, selecting(has("pool"))), "may not choose nodes"},
		"nodes that run Linux":           {on(map[string]string{"pool": "tenants", corev1.LabelOSStable: "linux"}, selecting(runs(corev1.NodeSelectorOpIn, "linux"))), ""},
		"nodes of another system":        {on(map[string]string{"pool": "tenants", corev1.LabelOSStable: "windows"}, nil), "may not choose nodes"},
		"a term of other systems":        {on(pool, selecting(runs(corev1.NodeSelectorOpIn, "linux", "windows"))), "may not choose nodes"},
		"a preference of no Linux":       {on(pool, preferring(runs(corev1.NodeSelectorOpNotIn, "linux"))), "may not choose nodes"},
	} {
		err := try(tc.pod)
		if tc.refused == "" && err != nil || tc.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.refused)) {
			t.Errorf("%s: got %v, want %q", name, err, tc.refused)
		}
	}

	// M1: so that the host's scheduler places the pods of DaemonSets.
	place(translate.Placement{Selector: pool, ByName: true})
	await("a node by its name, where there are DaemonSets", on(pool, selecting(byName)), func(err error) bool { return err == nil })
	notIn := *byName.DeepCopy()
	notIn.MatchFields[0].Operator = corev1.NodeSelectorOpNotIn
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		refused string
	}{
		"any of the host's":         {on(nil, selecting(byName)), "run on the space's nodes only"},
		"all but one":               {on(pool, selecting(notIn)), "may not choose nodes"},
		"a label of the field's":    {on(pool, selecting(has("metadata.name"))), "may not choose nodes"},
		"a selector of the field's": {on(map[string]string{"pool": "tenants", "metadata.name": "host-node-1"}, nil), "may not choose nodes"},
		"another label":             {on(pool, selecting(has("disk"))), "may not choose nodes"},
		"its name":                  {on(pool, func(p *corev1.PodSpec) { p.NodeName = "host-node-1" }), "may not choose nodes"},
	} {
		if err := try(tc.pod); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.refused) {
			t.Errorf("where there are DaemonSets, %s: got %v, want %q", name, err, tc.refused)
		}
	}

	// Taints: those of the space's nodes, exactly.
	tolerating := func(t corev1.Toleration) *corev1.Pod {
		return on(pool, func(p *corev1.PodSpec) { p.Tolerations = []corev1.Toleration{t} })
	}
	acme := corev1.Toleration{Key: "tenant", Value: "acme", Effect: corev1.TaintEffectNoSchedule}
	gpu := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	place(translate.Placement{Selector: pool, Tolerations: []corev1.Toleration{acme, gpu}})
	await("a toleration of the space's nodes", tolerating(acme), func(err error) bool { return err == nil })
	for name, tc := range map[string]struct {
		toleration corev1.Toleration
		refused    bool
	}{
		"another of the space's":  {gpu, false},
		"with the usual operator": {corev1.Toleration{Key: "tenant", Operator: corev1.TolerationOpEqual, Value: "acme", Effect: corev1.TaintEffectNoSchedule}, false},
		"of another tenant":       {corev1.Toleration{Key: "tenant", Value: "other", Effect: corev1.TaintEffectNoSchedule}, true},
		"of all tenants":          {corev1.Toleration{Key: "tenant", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, true},
		"of another effect":       {corev1.Toleration{Key: "tenant", Value: "acme", Effect: corev1.TaintEffectNoExecute}, true},
		"of all effects":          {corev1.Toleration{Key: "tenant", Value: "acme"}, true},
		"of all taints":           {corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		"of the control plane":    {corev1.Toleration{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists}, true},
	} {
		if err := try(tolerating(tc.toleration)); apierrors.IsForbidden(err) != tc.refused || !tc.refused && err != nil {
			t.Errorf("a toleration %s: got %v, want it refused: %t", name, err, tc.refused)
		}
	}

	place(translate.Placement{})
	await("a pod where nothing is said any more", on(nil, nil), func(err error) bool { return err == nil })
	await("a selector then", on(pool, nil), apierrors.IsForbidden)
}

// M2: what the host's own admission writes of nodes into a pod of Berth's passes,
// and so does what webhooks give pods that have an account of their own.
func TestThePoliciesLeavePlacementToTheHost(t *testing.T) {
	g, ctx := startPolicedHost(t), t.Context()
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandbox"}, Handler: "sandbox", Scheduling: &nodev1.Scheduling{
		NodeSelector: map[string]string{"pool": "sandboxes"}, Tolerations: []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpExists}},
	}}
	if err := g.admin.Create(ctx, class); err != nil {
		t.Fatal(err)
	}
	pod := hostPod("mine--default--sandboxed")
	pod.Spec.RuntimeClassName = &class.Name
	if err := g.account.Create(ctx, pod); err != nil {
		t.Errorf("a runtime class with nodes of its own: %v", err)
	}
	if pod.Spec.NodeSelector["pool"] != "sandboxes" {
		t.Errorf("the host wrote %v", pod.Spec.NodeSelector)
	}
	identified := hostPod("mine--default--identified")
	identified.Spec.ServiceAccountName, identified.Spec.AutomountServiceAccountToken = "mine--default--runner", ptr.To(false)
	identified.Spec.Volumes = []corev1.Volume{{Name: "aws", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
		ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "sts.amazonaws.com"},
	}}}}}}
	if err := g.account.Create(ctx, identified); err != nil {
		t.Errorf("a cloud's identity: %v", err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "berth-mine"}}
	if err := g.admin.Patch(ctx, ns, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"scheduler.alpha.kubernetes.io/node-selector":"pool=tenants"}}}`))); err != nil {
		t.Fatal(err)
	}
	placed := hostPod("mine--default--placed")
	placed.Spec.NodeSelector = map[string]string{"pool": "tenants"}
	var last error
	if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = g.account.Create(ctx, placed) // admission learns of the annotation from a watch
		return last == nil, nil
	}); err != nil {
		t.Errorf("nodes by the namespace: %v", last)
	}
	if err := g.admin.Patch(ctx, ns, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`))); err != nil {
		t.Fatal(err)
	}
	if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		other := hostPod("mine--default--other")
		other.Spec.NodeSelector = placed.Spec.NodeSelector
		last = g.account.Create(ctx, other, client.DryRunAll)
		return apierrors.IsForbidden(last), nil
	}); err != nil {
		t.Errorf("nodes by nobody: %v", last)
	}
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := g.admin.Get(ctx, client.ObjectKeyFromObject(placed), placed); err != nil {
			return err
		}
		placed.Labels["changed"] = "yes"
		return g.account.Update(ctx, placed)
	}); err != nil {
		t.Errorf("a change of a pod that has its nodes: %v", err)
	}
}
