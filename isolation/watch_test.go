// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// watchedHost is a host with isolated spaces, and what a watch says of them.
type watchedHost struct {
	client.WithWatch
	spaces  map[string]*isolation.Isolation
	options resources.SyncOptions

	mu      sync.Mutex
	changes map[string]isolation.Change
}

func (h *watchedHost) repair(t *testing.T) {
	t.Helper()
	if err := isolation.InstallPolicies(t.Context(), h, h.options); err != nil {
		t.Fatal(err)
	}
	for _, space := range h.spaces {
		if err := space.Apply(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
}

func (h *watchedHost) noted() map[string]isolation.Change {
	h.mu.Lock()
	defer h.mu.Unlock()
	noted := h.changes
	h.changes = map[string]isolation.Change{}
	return noted
}

// await waits for a change, and returns what was noted besides.
func (h *watchedHost) await(t *testing.T, want string) (besides []string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		found := false
		for text := range h.noted() {
			if text == want {
				found = true
			} else {
				besides = append(besides, text)
			}
		}
		return found, nil
	})
	if err != nil {
		t.Fatalf("the watch says %q, and not: %s", besides, want)
	}
	return besides
}

func startWatchedHost(t *testing.T) *watchedHost {
	t.Helper()
	c, err := client.NewWithWatch(startCluster(t), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	options, err := resources.Parse([]string{"ownpriorityclasses=5"})
	if err != nil {
		t.Fatal(err)
	}
	h := &watchedHost{WithWatch: c, options: options, changes: map[string]isolation.Change{}, spaces: map[string]*isolation.Isolation{}}
	for name, quota := range map[string]corev1.ResourceList{"usual": nil, "bounded": {corev1.ResourcePods: resource.MustParse("7"), corev1.ResourceRequestsCPU: resource.MustParse("1500m")}} {
		h.spaces[name] = &isolation.Isolation{
			Space: translate.Space{Name: name, Store: "store-of-" + name, Platform: "berth"}, Quota: quota,
			Options: []isolation.Option{isolation.Syncing(options), isolation.LabelledBy(map[string]string{"team": "a"}, nil)},
		}
	}
	h.spaces["bounded"].Options = append(h.spaces["bounded"].Options, isolation.Dedicated(options))
	return h
}

func (h *watchedHost) watch(t *testing.T) {
	t.Helper()
	watch := &isolation.Watch{
		Host: h, Of: func(space string) *isolation.Isolation { return h.spaces[space] }, Spaces: func() []string { return []string{"usual", "bounded"} },
		Changed: func(c isolation.Change) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.changes[c.String()] = c
		},
		Policies: isolation.Policies(h.options),
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		watch.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// edit changes an object as an admin of the host would.
func edit[T client.Object](object T, namespace, name string, change func(T)) func(context.Context, client.Client) error {
	return func(ctx context.Context, host client.Client) error {
		patient := wait.Backoff{Steps: 8, Duration: 10 * time.Millisecond, Factor: 2} // on a busy machine, the controller of quotas may win more than once
		return retry.RetryOnConflict(patient, func() error {
			if err := host.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
				return err
			}
			before, _ := object.DeepCopyObject().(client.Object)
			change(object)
			return host.Patch(ctx, object, client.MergeFrom(before))
		})
	}
}

func remove(object client.Object, namespace, name string) func(context.Context, client.Client) error {
	return func(ctx context.Context, host client.Client) error {
		object.SetNamespace(namespace)
		object.SetName(name)
		return host.Delete(ctx, object)
	}
}

// S21: what somebody changes of what isolates a space is seen, and can be put back; what is an admin's own is not.
func TestWhatIsolatesASpaceIsSeenToChange(t *testing.T) {
	h := startWatchedHost(t)
	const ns = "berth-usual"
	anybody := []networkingv1.NetworkPolicyIngressRule{{}}
	everything := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	somebody := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "somebody"}}
	type step struct {
		do   func(context.Context, client.Client) error
		says string
	}
	cases := map[string]step{
		"a deleted network policy": {remove(&networkingv1.NetworkPolicy{}, ns, "berth"), "NetworkPolicy berth in namespace berth-usual was deleted"},
		"a rule where Berth has none": {edit(&networkingv1.NetworkPolicy{}, ns, "berth", func(p *networkingv1.NetworkPolicy) { p.Spec.Ingress = anybody }),
			"spec.ingress of NetworkPolicy berth in namespace berth-usual was changed"},
		"a rule more": {edit(&networkingv1.NetworkPolicy{}, ns, "berth-egress", func(p *networkingv1.NetworkPolicy) {
			p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{})
		}),
			"spec.egress of NetworkPolicy berth-egress in namespace berth-usual was changed"},
		"a closed range less": {edit(&networkingv1.NetworkPolicy{}, ns, "berth-egress", func(p *networkingv1.NetworkPolicy) {
			for _, peer := range p.Spec.Egress[0].To {
				if peer.IPBlock != nil {
					peer.IPBlock.Except = nil
				}
			}
		}), "spec.egress of NetworkPolicy berth-egress in namespace berth-usual was changed"},
		"a policy that selects other pods": {edit(&networkingv1.NetworkPolicy{}, ns, "berth", func(p *networkingv1.NetworkPolicy) {
			p.Spec.PodSelector.MatchLabels = map[string]string{"nobody": "x"}
		}), "spec.podSelector of NetworkPolicy berth in namespace berth-usual was changed"},
		"a network policy without its label": {edit(&networkingv1.NetworkPolicy{}, ns, "berth", func(p *networkingv1.NetworkPolicy) { delete(p.Labels, translate.LabelSpace) }),
			"NetworkPolicy berth in namespace berth-usual was deleted"},
		"a weaker Pod Security level": {edit(&corev1.Namespace{}, "", ns, func(n *corev1.Namespace) { n.Labels["pod-security.kubernetes.io/enforce"] = "privileged" }),
			"metadata.labels[pod-security.kubernetes.io/enforce] of Namespace berth-usual was changed"},
		"no Pod Security level": {edit(&corev1.Namespace{}, "", ns, func(n *corev1.Namespace) { delete(n.Labels, "pod-security.kubernetes.io/enforce") }),
			"metadata.labels[pod-security.kubernetes.io/enforce] of Namespace berth-usual was changed"},
		"a namespace without the label of the space": {edit(&corev1.Namespace{}, "", ns, func(n *corev1.Namespace) { delete(n.Labels, translate.LabelSpace) }), "Namespace berth-usual was deleted"},
		"another label of the spec":                  {edit(&corev1.Namespace{}, "", ns, func(n *corev1.Namespace) { n.Labels["team"] = "b" }), "metadata.labels[team] of Namespace berth-usual was changed"},
		"a higher limit": {edit(&corev1.LimitRange{}, ns, "berth", func(l *corev1.LimitRange) {
			l.Spec.Limits[0].Default[corev1.ResourceMemory] = resource.MustParse("99Gi")
		}), "spec.limits of LimitRange berth in namespace berth-usual was changed"},
		"a deleted quota":           {remove(&corev1.ResourceQuota{}, ns, "berth"), "ResourceQuota berth in namespace berth-usual was deleted"},
		"a quota without its label": {edit(&corev1.ResourceQuota{}, ns, "berth", func(q *corev1.ResourceQuota) { delete(q.Labels, translate.LabelManagedBy) }), "ResourceQuota berth in namespace berth-usual was deleted"},
		"a quota without a bound":   {edit(&corev1.ResourceQuota{}, ns, "berth", func(q *corev1.ResourceQuota) { delete(q.Spec.Hard, corev1.ResourceConfigMaps) }), "spec.hard[configmaps] of ResourceQuota berth in namespace berth-usual was changed"},
		"a number of a quota that the spec says": {edit(&corev1.ResourceQuota{}, "berth-bounded", "berth", func(q *corev1.ResourceQuota) { q.Spec.Hard[corev1.ResourcePods] = resource.MustParse("70") }),
			"spec.hard[pods] of ResourceQuota berth in namespace berth-bounded was changed"},
		"a token for pods": {edit(&corev1.ServiceAccount{}, ns, "default", func(a *corev1.ServiceAccount) { a.AutomountServiceAccountToken = ptr.To(true) }),
			"automountServiceAccountToken of ServiceAccount default in namespace berth-usual was changed"},
		"a deleted account":          {remove(&corev1.ServiceAccount{}, ns, "berth-syncer"), "ServiceAccount berth-syncer in namespace berth-usual was deleted"},
		"more rights of the account": {edit(&rbacv1.Role{}, ns, "berth-syncer", func(r *rbacv1.Role) { r.Rules = everything }), "rules of Role berth-syncer in namespace berth-usual was changed"},
		"more rights of a dedicated space's account": {edit(&rbacv1.ClusterRole{}, "", "berth-bounded:dedicated", func(r *rbacv1.ClusterRole) { r.Rules = everything }),
			"rules of ClusterRole berth-bounded:dedicated was changed"},
		"a deleted binding of a dedicated space's account": {remove(&rbacv1.ClusterRoleBinding{}, "", "berth-bounded:dedicated"), "ClusterRoleBinding berth-bounded:dedicated was deleted"},
		"a deleted binding": {remove(&rbacv1.RoleBinding{}, ns, "berth-syncer"), "RoleBinding berth-syncer in namespace berth-usual was deleted"},
		"another subject":   {edit(&rbacv1.RoleBinding{}, ns, "berth-syncer", func(b *rbacv1.RoleBinding) { b.Subjects = somebody }), "subjects of RoleBinding berth-syncer in namespace berth-usual was changed"},
		"another role": {func(ctx context.Context, host client.Client) error {
			binding := &rbacv1.RoleBinding{}
			if err := host.Get(ctx, client.ObjectKey{Namespace: ns, Name: "berth-syncer"}, binding); err != nil {
				return err
			}
			other := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: binding.Name, Labels: binding.Labels}, RoleRef: binding.RoleRef, Subjects: binding.Subjects}
			other.RoleRef.Name = "another"
			if err := host.Delete(ctx, binding); err != nil {
				return err
			}
			return host.Create(ctx, other)
		}, "roleRef of RoleBinding berth-syncer in namespace berth-usual was changed"},
		"more rights on classes": {edit(&rbacv1.ClusterRole{}, "", ns, func(r *rbacv1.ClusterRole) { r.Rules = everything }), "rules of ClusterRole berth-usual was changed"},
		"no rights on classes":   {remove(&rbacv1.ClusterRoleBinding{}, "", ns), "ClusterRoleBinding berth-usual was deleted"},
		"a deleted policy":       {remove(&admissionv1.ValidatingAdmissionPolicy{}, "", "berth-space-pods"), "ValidatingAdmissionPolicy berth-space-pods was deleted"},
		"a condition of a policy": {edit(&admissionv1.ValidatingAdmissionPolicy{}, "", "berth-space-pods", func(p *admissionv1.ValidatingAdmissionPolicy) {
			p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionv1.MatchCondition{Name: "never", Expression: "false"})
		}), "spec of ValidatingAdmissionPolicy berth-space-pods was changed"},
		"resources that a policy is not about": {edit(&admissionv1.ValidatingAdmissionPolicy{}, "", "berth-space-accounts", func(p *admissionv1.ValidatingAdmissionPolicy) {
			p.Spec.MatchConstraints.ExcludeResourceRules = p.Spec.MatchConstraints.ResourceRules
		}), "spec of ValidatingAdmissionPolicy berth-space-accounts was changed"},
		"a policy that warns": {edit(&admissionv1.ValidatingAdmissionPolicyBinding{}, "", "berth-space-classes", func(b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
		}), "spec of ValidatingAdmissionPolicyBinding berth-space-classes was changed"},
	}

	h.repair(t)
	before := h.versions(t)
	h.repair(t)
	if diff := cmp.Diff(before, h.versions(t)); diff != "" {
		t.Errorf("what is as it has to be is written again: %s", diff)
	}
	admins := []step{
		{do: edit(&corev1.ResourceQuota{}, ns, "berth", func(q *corev1.ResourceQuota) {
			q.Spec.Hard[corev1.ResourcePods], q.Spec.Hard["count/jobs.batch"] = resource.MustParse("70"), resource.MustParse("9")
		})},
		{do: edit(&corev1.Namespace{}, "", ns, func(n *corev1.Namespace) { n.Labels["cost-center"] = "4711" })},
		{do: edit(&corev1.ServiceAccount{}, ns, "default", func(a *corev1.ServiceAccount) { a.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}} })},
		{do: func(ctx context.Context, host client.Client) error {
			return host.Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "monitoring"}, Spec: networkingv1.NetworkPolicySpec{Ingress: anybody}})
		}},
	}
	if err := cases["a deleted binding"].do(t.Context(), h); err != nil { // while nobody watches
		t.Fatal(err)
	}
	h.watch(t)
	if others := h.await(t, cases["a deleted binding"].says); len(others) > 0 {
		t.Errorf("what is as it has to be is said to be changed: %q", others)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h.repair(t) // what another change left
			for _, own := range admins {
				if err := own.do(t.Context(), h); client.IgnoreAlreadyExists(err) != nil {
					t.Fatal(err)
				}
			}
			if err := c.do(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			h.await(t, c.says)
		})
	}
	h.repair(t)
	t.Run("all of it is put back", func(t *testing.T) {
		again := &watchedHost{WithWatch: h.WithWatch, spaces: h.spaces, options: h.options, changes: map[string]isolation.Change{}}
		again.watch(t)
		if err := cases["a deleted policy"].do(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		if others := again.await(t, cases["a deleted policy"].says); len(others) > 0 {
			t.Errorf("these were not put back: %q", others)
		}
	})
}

// versions are those of all objects that isolate spaces, except for quotas, whose status the host writes.
func (h *watchedHost) versions(t *testing.T) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, list := range []client.ObjectList{
		&corev1.NamespaceList{}, &corev1.LimitRangeList{}, &corev1.ServiceAccountList{}, &networkingv1.NetworkPolicyList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{},
		&rbacv1.ClusterRoleBindingList{}, &admissionv1.ValidatingAdmissionPolicyBindingList{},
	} {
		if err := h.List(t.Context(), list, client.MatchingLabels{translate.LabelManagedBy: translate.ManagedBy}); err != nil {
			t.Fatal(err)
		}
		if err := apimeta.EachListItem(list, func(item runtime.Object) error {
			object, _ := item.(client.Object)
			versions[fmt.Sprintf("%T %s", item, client.ObjectKeyFromObject(object))] = object.GetResourceVersion()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return versions
}
