// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
)

// full is a tenant with everything that is kept.
func full() *access.State {
	state := capsule()
	state.Access.Owners[0].Labels = map[string]string{"example.com/sample": "true"}
	state.Access.Owners[0].Annotations = map[string]string{"example.com/sample": "true"}
	state.Access.AdditionalRoleBindings = []v1alpha1.AdditionalRoleBinding{{ClusterRoleName: "view", Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "joe"}}}}
	state.Namespaces = v1alpha1.Namespaces{
		Labels: map[string]string{"cost": "42"}, Annotations: map[string]string{"example.com/team": "sun"},
		LimitRanges: []corev1.LimitRangeSpec{{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}}}},
		NetworkPolicies: []networkingv1.NetworkPolicySpec{{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}}},
	}
	return state
}

// bindingNames returns what `kubectl get rolebindings -o name` shows.
func bindingNames(t *testing.T, c kubernetes.Interface, namespace string) []string {
	t.Helper()
	list, err := c.RbacV1().RoleBindings(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names
}

func wantBindings(t *testing.T, c kubernetes.Interface, namespace string, want ...string) {
	t.Helper()
	eventually(t, func() error {
		if got := bindingNames(t, c, namespace); !slices.Equal(got, want) {
			return fmt.Errorf("the role bindings in %s are %v, want %v", namespace, got, want)
		}
		return nil
	})
}

// O3, O4: what each namespace shows; it comes back when it is deleted or changed, and follows the state.
func TestRoleBindingsAreShownAndComeBack(t *testing.T) {
	state := full()
	e := startEnv(t, state)
	admin := e.admin()
	if err := createNamespace(t, e.user("alice", v1alpha1.OwnersGroup), "solar-production"); err != nil {
		t.Fatal(err)
	}
	names := []string{"berth-solar-0-admin", "berth-solar-1-berth-namespace-deleter", "berth-solar-view"}
	wantBindings(t, admin, "solar-production", names...)
	bindings := admin.RbacV1().RoleBindings("solar-production")
	b, err := bindings.Get(t.Context(), names[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if b.Labels["example.com/sample"] != "true" || b.Annotations["example.com/sample"] != "true" || b.Labels[access.LabelTenant] != "solar" || b.Labels[access.LabelRoleBinding] == "" {
		t.Errorf("labels %v, annotations %v", b.Labels, b.Annotations)
	}
	if _, err := admin.RbacV1().ClusterRoles().Get(t.Context(), v1alpha1.NamespaceDeleterRole, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if err := bindings.Delete(t.Context(), names[0], metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wantBindings(t, admin, "solar-production", names...)
	b, err = bindings.Get(t.Context(), names[1], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.Subjects, b.Finalizers = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "mallory"}), []string{"example.com/hold"}
	if _, err := bindings.Update(t.Context(), b, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	check(t, "mallory", e.user("mallory"), answer{"delete", "namespaces", "solar-production", "no"})
	eventually(t, func() error {
		b, err := bindings.Get(t.Context(), names[1], metav1.GetOptions{})
		if err != nil || len(b.Subjects) != 1 || len(b.Finalizers) > 0 {
			return fmt.Errorf("it is not repaired: %+v: %w", b, errOr(err))
		}
		return nil
	})

	next := *state
	next.Access.Owners = append(slices.Clone(state.Access.Owners), v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "joe", ClusterRoles: []string{"view"}})
	e.source.Set(&next)
	wantBindings(t, admin, "solar-production", "berth-solar-0-admin", "berth-solar-1-berth-namespace-deleter", "berth-solar-2-view", "berth-solar-view")
	e.source.Set(&access.State{Space: "solar"})
	wantBindings(t, admin, "solar-production")
	eventually(t, func() error {
		_, err := admin.RbacV1().ClusterRoles().Get(t.Context(), v1alpha1.NamespaceDeleterRole, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return errOr(err)
		}
		n, err := admin.CoreV1().Namespaces().Get(t.Context(), "solar-production", metav1.GetOptions{})
		if err != nil || len(n.Annotations) > 0 || len(n.Labels) != 1 {
			return fmt.Errorf("labels %v, annotations %v: %w", n.Labels, n.Annotations, errOr(err))
		}
		return nil
	})
}

// O8: labels are on each namespace of the tenant, and on no other. Policies are in all namespaces, so that no pod escapes them. They change
// with the state also while the space sleeps.
func TestPoliciesAndLabelsFollowTheState(t *testing.T) {
	state := full()
	e := startEnv(t, &access.State{Space: "solar"})
	if err := createNamespace(t, e.admin(), "before"); err != nil {
		t.Fatal(err)
	}
	e.source.Set(state)
	if err := createNamespace(t, e.user("alice", v1alpha1.OwnersGroup), "after"); err != nil {
		t.Fatal(err)
	}
	expect := func(namespace string, policies int, cost string) {
		t.Helper()
		c := e.admin()
		eventually(t, func() error {
			ranges, err := c.CoreV1().LimitRanges(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			nets, err := c.NetworkingV1().NetworkPolicies(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			n, err := c.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if len(ranges.Items) != policies || len(nets.Items) != policies || n.Labels["cost"] != cost {
				return fmt.Errorf("%s has %d limit ranges, %d network policies, and the label %q", namespace, len(ranges.Items), len(nets.Items), n.Labels["cost"])
			}
			if policies > 0 && (ranges.Items[0].Name != "berth-solar-0" || nets.Items[0].Name != "berth-solar-0") {
				return fmt.Errorf("the names are %s and %s", ranges.Items[0].Name, nets.Items[0].Name)
			}
			return nil
		})
	}
	expect("before", 1, "42")
	expect("after", 1, "42")
	expect("default", 1, "")
	expect("kube-system", 1, "")
	n, err := e.admin().CoreV1().Namespaces().Get(t.Context(), "after", metav1.GetOptions{})
	if err != nil || n.Annotations["example.com/team"] != "sun" {
		t.Errorf("annotations %v, %v", n.Annotations, err)
	}
	e.sleepAndWake(func() {
		next := *state
		next.Namespaces = v1alpha1.Namespaces{Labels: map[string]string{"cost": "7"}}
		e.source.Set(&next)
	})
	expect("before", 0, "7")
	expect("after", 0, "7")
	expect("default", 0, "")
}

// O8
func TestTheQuotaOfNamespacesHoldsInARace(t *testing.T) {
	state := capsule()
	state.Namespaces.Quota = ptr.To[int32](5)
	e := startEnv(t, state)
	alice := e.user("alice", v1alpha1.OwnersGroup)
	if err := createNamespace(t, alice, "first"); err != nil {
		t.Fatal(err)
	}
	const racers = 40
	made := make(chan error, racers)
	for i := range racers {
		go func() {
			name := fmt.Sprintf("race-%d", i)
			if i%2 == 0 {
				made <- createNamespace(t, alice, name)
				return
			}
			made <- applyNamespace(t, e, name)
		}()
	}
	passed := 1
	for range racers {
		err := <-made
		if err == nil {
			passed++
			continue
		}
		if err := forbidden(err, "exceeded quota: tenant solar, requested: namespaces=1, used: namespaces=5, limited: namespaces=5", "delete a namespace"); err != nil {
			t.Error(err)
		}
	}
	if passed != 5 {
		t.Errorf("%d namespaces were made, want 5", passed)
	}
	list, err := e.admin().CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tenants := slices.DeleteFunc(list.Items, func(n corev1.Namespace) bool { return !access.IsTenants(n.Name) })
	if len(tenants) != 5 {
		t.Errorf("there are %d namespaces of the tenant, want 5", len(tenants))
	}
	_, err = e.admin().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dry"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err := forbidden(err, "exceeded quota"); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	if err := alice.CoreV1().Namespaces().Delete(t.Context(), tenants[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return createNamespace(t, alice, "again") })
}

func applyNamespace(t *testing.T, e *env, name string) error {
	t.Helper()
	c := e.by(e.clients().Client("admin", []string{"berth:admins"}))
	d, err := dynamic.NewForConfig(c)
	if err != nil {
		return err
	}
	_, err = d.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Apply(t.Context(), name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}, metav1.ApplyOptions{FieldManager: "test"})
	return err
}

// O8: no pod of a new namespace escapes its limits, however soon it comes.
func TestPodsOfNewNamespacesHaveTheirLimits(t *testing.T) {
	e := startEnv(t, full())
	alice := e.user("alice", v1alpha1.OwnersGroup)
	for i := range 10 {
		namespace := fmt.Sprintf("quick-%d", i)
		if err := createNamespace(t, alice, namespace); err != nil {
			t.Fatal(err)
		}
		var pod *corev1.Pod
		eventually(t, func() (err error) { // its ServiceAccount may not be there yet
			pod, err = alice.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
			}, metav1.CreateOptions{})
			return err
		})
		if limit := pod.Spec.Containers[0].Resources.Limits.Cpu(); limit.String() != "1" {
			t.Errorf("a pod of %s has the limit %s", namespace, limit)
		}
	}
}

// P1, T8: what was changed despite all is repaired when the space wakes, and what was not is not written again.
func TestAWakeRepairsWhatWasChanged(t *testing.T) {
	state := full()
	state.Published = []access.Published{
		publish("", definition()), publish(v1alpha1.SameNamespace, configMap("web", "same", "one")), publish(v1alpha1.SameNamespace, configMap("web", "other", "one")),
		publish("", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shared", "labels": map[string]any{"a": "b"}}}),
		publish("", map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "gateways", "labels": map[string]any{"rbac.authorization.k8s.io/aggregate-to-admin": "true"}},
			"rules": []any{map[string]any{"apiGroups": []any{"gateway.example.com"}, "resources": []any{"gateways"}, "verbs": []any{"*"}}},
		}),
	}
	e := startEnv(t, state)
	alice := e.user("alice", v1alpha1.OwnersGroup)
	if err := createNamespace(t, alice, "web"); err != nil {
		t.Fatal(err)
	}
	versions := func() map[string]string {
		t.Helper()
		d, err := dynamic.NewForConfig(e.plane.Loopback())
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, o := range []struct{ group, resource, namespace, name string }{
			{"", "limitranges", "web", "berth-solar-0"}, {"networking.k8s.io", "networkpolicies", "web", "berth-solar-0"}, {"", "configmaps", "web", "same"},
			{"", "configmaps", "web", "other"}, {"apiextensions.k8s.io", "customresourcedefinitions", "", "widgets.example.com"},
			{"rbac.authorization.k8s.io", "rolebindings", "web", "berth-solar-0-admin"}, {"rbac.authorization.k8s.io", "clusterroles", "", "gateways"},
			{"rbac.authorization.k8s.io", "clusterroles", "", v1alpha1.NamespaceDeleterRole}, {"", "configmaps", "kube-system", "berth-kept"}, {"", "namespaces", "", "shared"},
		} {
			eventually(t, func() error {
				u, err := of(d, gvr(o.group, "v1", o.resource), o.namespace).Get(t.Context(), o.name, metav1.GetOptions{})
				if err == nil {
					found[o.resource+"/"+o.name] = u.GetResourceVersion()
				}
				return err
			})
		}
		return found
	}
	versions()
	// O9: a role of the admin's adds to the owners' roles.
	eventually(t, func() error {
		if canI(t, alice, "create", "gateways.gateway.example.com", "web") != "yes" {
			return errOr(nil)
		}
		return nil
	})
	if n, err := e.admin().CoreV1().Namespaces().Get(t.Context(), "shared", metav1.GetOptions{}); err != nil || n.Labels["a"] != "b" || n.Labels["cost"] != "42" {
		t.Errorf("the published namespace is %+v, %v", n, err)
	}
	inside := client(t, e.plane.Loopback())
	changed, err := inside.CoreV1().ConfigMaps("web").Get(t.Context(), "other", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed.Data = map[string]string{"key": "tampered", "more": "x"}
	if _, err := inside.CoreV1().ConfigMaps("web").Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := versions()
	e.sleepAndWake(func() {})
	eventually(t, func() error {
		c, err := e.admin().CoreV1().ConfigMaps("web").Get(t.Context(), "other", metav1.GetOptions{})
		if err != nil || c.Data["key"] != "one" || len(c.Data) != 1 {
			return fmt.Errorf("it is %+v: %w", c, errOr(err))
		}
		return nil
	})
	after := versions()
	delete(before, "configmaps/other")
	delete(before, "customresourcedefinitions/widgets.example.com") // upstream says in its status that it is served
	for name, version := range before {
		if after[name] != version {
			t.Errorf("%s was written again: version %s, then %s", name, version, after[name])
		}
	}
}

// L3: what enforces a state ends with the control plane, also in the middle of its work.
func TestNothingOutlivesTheControlPlane(t *testing.T) {
	state := full()
	state.Published = []access.Published{publish(v1alpha1.EveryNamespace, map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"}})}
	e := startEnv(t, state)
	if err := createNamespace(t, e.admin(), "web"); err != nil {
		t.Fatal(err)
	}
	watchConfigMaps(t, e.user("alice", v1alpha1.OwnersGroup))
	e.stop()
	eventually(t, func() error {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for _, part := range []string{"berth/vcluster/tenancy.(", "berth/vcluster/tenancy/keeper."} {
			if at := strings.Index(string(stacks), part); at >= 0 {
				return fmt.Errorf("a goroutine is left: %s", stacks[at:min(len(stacks), at+500)])
			}
		}
		return nil
	})
}
