// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/pod"
	"github.com/berth-dev/berth/translate"
)

// T9: each pod is a shard, which only Berth's pods reach.
func TestEachPodIsAShard(t *testing.T) {
	objects := render(t, "networkPolicy.enabled=true", "pods.enabled=false", "replicas=3")
	set := find[*appsv1.StatefulSet](t, objects, nil)
	container := set.Spec.Template.Spec.Containers[0]
	var args []string
	for _, arg := range container.Args {
		if strings.HasPrefix(arg, "--shard") {
			args = append(args, arg)
		}
	}
	if diff := cmp.Diff([]string{"--shard=$(POD_NAME)", "--shard-namespace=" + set.Namespace, "--shard-address=$(POD_IP):7445", "--shard-zone=$(ZONE)", "--shard-drain-timeout=150s"}, args); diff != "" {
		t.Error(diff)
	}
	fields := map[string]string{}
	for _, env := range container.Env {
		if env.ValueFrom != nil {
			fields[env.Name] = env.ValueFrom.FieldRef.FieldPath
		}
	}
	if diff := cmp.Diff(map[string]string{"POD_IP": "status.podIP", "POD_NAME": "metadata.name", "ZONE": "metadata.labels['topology.kubernetes.io/zone']"}, fields); diff != "" {
		t.Error(diff)
	}
	if *set.Spec.Replicas != 3 || set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement || set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType {
		t.Errorf("the StatefulSet is %+v", set.Spec)
	}
	own := labels.Set(set.Spec.Template.Labels)
	for _, constraint := range set.Spec.Template.Spec.TopologySpreadConstraints {
		selector, err := metav1.LabelSelectorAsSelector(constraint.LabelSelector)
		if err != nil || selector.Empty() || !selector.Matches(own) || constraint.WhenUnsatisfiable != corev1.ScheduleAnyway {
			t.Errorf("the pods are spread by %+v (%v)", constraint, err)
		}
	}
	if n := len(set.Spec.Template.Spec.TopologySpreadConstraints); n != 2 {
		t.Errorf("%d constraints", n)
	}
	checkShardsPort(t, find[*networkingv1.NetworkPolicy](t, objects, func(p *networkingv1.NetworkPolicy) bool { return p.Name == set.Name }), own)
	if budget := find[*policyv1.PodDisruptionBudget](t, objects, func(p *policyv1.PodDisruptionBudget) bool { return p.Name == set.Name }); budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("%v pods may be evicted at once", budget.Spec.MaxUnavailable)
	}
}

// D6: pods of another version, for the spaces that their labels select, are shards like the others.
func TestAPoolHasPodsOfItsOwn(t *testing.T) {
	objects := render(t, "image.digest=sha256:"+strings.Repeat("a", 64), "pools[0].name=canary", "pools[0].image.tag=v9.0.0", "pools[0].spaceSelector=stage=canary",
		"pools[1].name=old", "pools[1].replicas=2", "pools[1].emulatedVersion=1.36", "pools[1].spaceSelector=berth.dev/kubernetes-version=1.36")
	sets := map[string]*appsv1.StatefulSet{}
	for _, o := range objects {
		if set, ok := o.(*appsv1.StatefulSet); ok {
			sets[set.Name] = set
		}
	}
	usual, canary, old := sets["berth"], sets["berth-canary"], sets["berth-old"]
	if len(sets) != 3 || usual == nil || canary == nil || old == nil {
		t.Fatalf("the StatefulSets are %v", slices.Collect(maps.Keys(sets)))
	}
	if usual.Spec.Template.Spec.Containers[0].Image != old.Spec.Template.Spec.Containers[0].Image || !strings.HasSuffix(canary.Spec.Template.Spec.Containers[0].Image, ":v9.0.0") {
		t.Errorf("the image of the canary is %s, and that of the others %s", canary.Spec.Template.Spec.Containers[0].Image, old.Spec.Template.Spec.Containers[0].Image)
	}
	if *canary.Spec.Replicas != 1 || *old.Spec.Replicas != 2 {
		t.Errorf("there are %d and %d pods", *canary.Spec.Replicas, *old.Spec.Replicas)
	}
	more := func(set *appsv1.StatefulSet) (args []string) {
		for _, arg := range set.Spec.Template.Spec.Containers[0].Args {
			if !slices.Contains(usual.Spec.Template.Spec.Containers[0].Args, arg) {
				args = append(args, arg)
			}
		}
		return args
	}
	if diff := cmp.Diff([]string{"--dedicated-max=0", "--shard-space-selector=stage=canary"}, more(canary)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"--emulated-version=1.36", "--shard-space-selector=berth.dev/kubernetes-version=1.36"}, more(old)); diff != "" {
		t.Error(diff)
	}
	service := find[*corev1.Service](t, objects, func(s *corev1.Service) bool { return s.Name == "berth" })
	for name, set := range sets {
		if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(set.Spec.Template.Labels)) {
			t.Errorf("the Service does not lead to %s", name)
		}
	}
	for _, values := range [][]string{
		{"operator.enabled=false", "pools[0].name=canary", "pools[0].spaceSelector=a=b"}, {"pools[0].name=canary"}, {"autoscaling.enabled=true", "pools[0].name=canary", "pools[0].spaceSelector=a=b"},
		{"pools[0].name=canary", "pools[0].spaceSelector=a=b", "pools[0].image.repository=x"}, {"pools[0].name=operator", "pools[0].spaceSelector=a=b"},
		{"pools[0].name=x", "pools[0].spaceSelector=a=b", "pools[1].name=x", "pools[1].spaceSelector=a=c"},
	} {
		args := []string{"template", "berth", "berth"}
		for _, value := range values {
			args = append(args, "--set", value)
		}
		if _, problems, err := helm(t, args...); err == nil || !strings.Contains(problems, "pools") {
			t.Errorf("with %v: %v %s", values, err, problems)
		}
	}
}

// T9: also without the policy of the other ports, strangers don't reach that of the shards.
func TestOnlyShardsReachTheirPort(t *testing.T) {
	objects := render(t, "networkPolicy.enabled=false", "replicas=3")
	set := find[*appsv1.StatefulSet](t, objects, nil)
	policy := find[*networkingv1.NetworkPolicy](t, objects, func(p *networkingv1.NetworkPolicy) bool { return p.Name == set.Name+"-shards" })
	checkShardsPort(t, policy, labels.Set(set.Spec.Template.Labels))
}

// checkShardsPort checks that a policy opens the port of the shards to their pods alone.
func checkShardsPort(t *testing.T, policy *networkingv1.NetworkPolicy, own labels.Set) {
	t.Helper()
	reached := false
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			if port.EndPort != nil && *port.Protocol == corev1.ProtocolTCP && port.Port.IntValue() <= 7445 && *port.EndPort >= 7445 {
				t.Errorf("the port is among %s to %d, which are open to %+v", port.Port, *port.EndPort, rule.From)
			}
			if *port.Port != intstr.FromString("shards") {
				continue
			}
			reached = true
			if len(rule.From) != 1 || rule.From[0].NamespaceSelector != nil || rule.From[0].PodSelector == nil {
				t.Fatalf("the port is open to %+v", rule.From)
			}
			if selector, err := metav1.LabelSelectorAsSelector(rule.From[0].PodSelector); err != nil || selector.Empty() || !selector.Matches(own) {
				t.Errorf("the port is open to %v (%v)", selector, err)
			}
		}
	}
	if !reached {
		t.Error("no shard reaches another")
	}
}

// Without an operator, nobody would place spaces: the one pod has all.
func TestWithoutAnOperatorNoPodIsAShard(t *testing.T) {
	for _, o := range render(t, "operator.enabled=false", "networkPolicy.enabled=true", "podDisruptionBudget.enabled=true") {
		switch o := o.(type) {
		case *appsv1.StatefulSet:
			if text := strings.Join(o.Spec.Template.Spec.Containers[0].Args, " "); strings.Contains(text, "--shard") || *o.Spec.Replicas != 1 {
				t.Errorf("it runs %s", text)
			}
		case *rbacv1.Role:
			if strings.HasSuffix(o.Name, "-shards") {
				t.Error("it has rights on shards")
			}
		case *policyv1.PodDisruptionBudget:
			if o.Spec.MaxUnavailable.IntValue() != 0 {
				t.Error("the only pod may be evicted")
			}
		}
	}
}

// A pod that is removed keeps its stores, so that pods are only added, unless an admin says otherwise.
func TestPodsAreAddedByAwakeSpaces(t *testing.T) {
	objects := render(t, "autoscaling.enabled=true")
	if set := find[*appsv1.StatefulSet](t, objects, nil); set.Spec.Replicas != nil {
		t.Errorf("an upgrade would set %d replicas", *set.Spec.Replicas)
	}
	scaler := find[*autoscalingv2.HorizontalPodAutoscaler](t, objects, nil)
	if *scaler.Spec.Behavior.ScaleDown.SelectPolicy != autoscalingv2.DisabledPolicySelect {
		t.Error("pods are removed with their stores")
	}
	metric := scaler.Spec.Metrics[0].Pods
	if metric.Metric.Name != "berth_spaces" || metric.Metric.Selector.MatchLabels["state"] != "awake" || metric.Target.AverageValue.Value() != 150 {
		t.Errorf("they are added by %+v", metric)
	}
}

// T9, M4: under the rights of the chart, a shard writes its own objects, and the operator those fields of a space that placement is about.
func TestAccountsWriteWhatShardsNeed(t *testing.T) {
	r, ctx := startReleases(t), t.Context()
	operator := r.as("system:serviceaccount:platform:berth-operator")
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "platform", Name: name} }
	ca, podsCA := &corev1.Secret{ObjectMeta: at("berth-shards")}, &corev1.Secret{ObjectMeta: at("berth-shards-pods")}
	for _, o := range []client.Object{&v1alpha1.Shard{ObjectMeta: at("berth-0")}, &coordinationv1.Lease{ObjectMeta: at("berth-0")}, ca, podsCA} {
		if err := r.berth.Create(ctx, o); err != nil {
			t.Errorf("create %T: %v", o, err)
		}
	}
	own := &corev1.Secret{ObjectMeta: at(pod.Name("remote")), Type: pod.SecretType, Data: map[string][]byte{"incarnation": []byte("random")}}
	own.Labels = map[string]string{pod.Label: "remote", translate.LabelPlatform: "berth"}
	pods := &pod.Pods{Host: r.berth, Platform: "berth", Template: &appsv1.StatefulSet{ObjectMeta: at("")}}
	if err := r.berth.Create(ctx, own); err != nil {
		t.Fatal(err)
	}
	if known, err := pods.Known(ctx, "remote", "incarnation"); err != nil || string(known) != "random" {
		t.Errorf("a shard finds the pod of another one by %q: %v", known, err)
	}
	patch := func(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }
	space, foreign := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "acme"}, Spec: v1alpha1.SpaceSpec{TenantName: "acme"}}, &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "free"}}
	stored := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "stored", Annotations: map[string]string{translate.AnnotationStore: "a", v1alpha1.AnnotationMoveTo: ""}}}
	remote := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "remote", Annotations: map[string]string{translate.AnnotationStore: "b"}}}
	remote.Spec.Store = v1alpha1.Store{Type: v1alpha1.StorePostgreSQL, SecretName: "remote-store"}
	leaving, dedicated := remote.DeepCopy(), remote.DeepCopy()
	dedicated.Name = "dedicated"
	leaving.Name, leaving.Finalizers = "leaving", []string{v1alpha1.Finalizer}
	for _, o := range []client.Object{space, foreign, stored, remote, leaving, dedicated} {
		if err := r.admin.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	dedicated.Status.Isolation = v1alpha1.Dedicated
	if err := r.admin.Status().Update(ctx, dedicated); err != nil {
		t.Fatal(err)
	}
	if err := r.admin.Delete(ctx, leaving.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"read the CAs":          r.berth.Get(ctx, client.ObjectKeyFromObject(ca), &corev1.Secret{}),
		"write the CAs":         r.berth.Update(ctx, ca),
		"read that of pods":     r.berth.Get(ctx, client.ObjectKeyFromObject(podsCA), &corev1.Secret{}),
		"write that of pods":    r.berth.Update(ctx, podsCA),
		"renew a Lease":         r.berth.Patch(ctx, &coordinationv1.Lease{ObjectMeta: at("berth-0")}, patch(`{"spec":{"holderIdentity":"a"}}`)),
		"report":                r.berth.Status().Patch(ctx, &v1alpha1.Shard{ObjectMeta: at("berth-0")}, patch(`{"status":{"spaces":1}}`)),
		"see the others":        r.berth.List(ctx, &v1alpha1.ShardList{}, client.InNamespace("platform")),
		"see shards":            operator.List(ctx, &v1alpha1.ShardList{}, client.InNamespace("platform")),
		"see Leases":            operator.List(ctx, &coordinationv1.LeaseList{}, client.InNamespace("platform")),
		"place a space":         operator.Status().Patch(ctx, foreign.DeepCopy(), patch(`{"status":{"shard":"berth-0"}}`)),
		"place a tenant's":      operator.Status().Patch(ctx, space.DeepCopy(), patch(`{"status":{"shard":"berth-0"}}`)),
		"move a space":          operator.Status().Patch(ctx, stored.DeepCopy(), patch(`{"status":{"movingTo":"berth-0"}}`)),
		"have one fail over":    operator.Status().Patch(ctx, remote.DeepCopy(), patch(`{"status":{"shard":"berth-1"}}`)),
		"and a dedicated one":   operator.Status().Patch(ctx, dedicated.DeepCopy(), patch(`{"status":{"shard":"berth-1"}}`)),
		"note where it goes":    operator.Patch(ctx, stored.DeepCopy(), patch(`{"metadata":{"annotations":{"berth.dev/move-to":"berth-0"}}}`)),
		"note that it is moved": operator.Patch(ctx, stored.DeepCopy(), patch(`{"metadata":{"annotations":{"berth.dev/move-to":null}}}`)),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	r.eventually(t, "the host does not hold the operator to its policy", func(ctx context.Context) bool {
		return apierrors.IsForbidden(operator.Create(ctx, &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "none"}}, client.DryRunAll))
	})
	token := &corev1.Secret{ObjectMeta: at("berth-shards"), Type: corev1.SecretTypeServiceAccountToken}
	token.Annotations = map[string]string{corev1.ServiceAccountNameKey: "berth-operator"}
	if err := r.admin.Delete(ctx, ca.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := r.admin.Create(ctx, &coordinationv1.Lease{ObjectMeta: at("berth-operator")}); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"the token of an account as the CAs":  r.berth.Create(ctx, token),
		"another Secret":                      r.berth.Create(ctx, &corev1.Secret{ObjectMeta: at("berth-others")}),
		"the operator's Lease":                r.berth.Patch(ctx, &coordinationv1.Lease{ObjectMeta: at("berth-operator")}, patch(`{"spec":{"holderIdentity":"a"}}`)),
		"a shard of another name":             r.berth.Create(ctx, &v1alpha1.Shard{ObjectMeta: at("other-0")}),
		"drain a shard":                       r.berth.Patch(ctx, &v1alpha1.Shard{ObjectMeta: at("berth-0")}, patch(`{"spec":{"drain":true}}`)),
		"a shard in another namespace":        r.berth.Create(ctx, &v1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "berth-0"}}),
		"a shard by the operator":             operator.Create(ctx, &v1alpha1.Shard{ObjectMeta: at("berth-1")}),
		"the shard of a space with a store":   operator.Status().Patch(ctx, stored.DeepCopy(), patch(`{"status":{"shard":"berth-1"}}`)),
		"that of one that is being deleted":   operator.Status().Patch(ctx, leaving.DeepCopy(), patch(`{"status":{"shard":"berth-1"}}`)),
		"another field of the status":         operator.Status().Patch(ctx, space.DeepCopy(), patch(`{"status":{"endpoint":"https://example.com"}}`)),
		"conditions":                          operator.Status().Patch(ctx, space.DeepCopy(), patch(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"A","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)),
		"the store of somebody's space":       operator.Patch(ctx, foreign.DeepCopy(), patch(`{"metadata":{"annotations":{"berth.dev/store":"b"}}}`)),
		"without its store, somebody's space": operator.Patch(ctx, stored.DeepCopy(), patch(`{"metadata":{"annotations":{"berth.dev/store":null}}}`)),
		"a label of somebody's space":         operator.Patch(ctx, foreign.DeepCopy(), patch(`{"metadata":{"labels":{"a":"b"}}}`)),
		"the spec of somebody's space":        operator.Patch(ctx, foreign.DeepCopy(), patch(`{"spec":{"paused":true}}`)),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it forbidden", what, err)
		}
	}
}
