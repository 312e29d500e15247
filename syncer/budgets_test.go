// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/translate"
)

// holdsBack makes a budget in the space under which no pod of app=web may go.
func (env *testEnv) holdsBack(t *testing.T, name string) {
	t.Helper()
	must(t, env.virtual.PolicyV1().PodDisruptionBudgets("default").Create, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromString("100%")), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	})
}

// budgeted waits until a budget on the host says how many pods must stay, and may go.
func (env *testEnv) budgeted(t *testing.T, name string, stay, may int) {
	t.Helper()
	awaited(t, fmt.Sprintf("see %d pods held by %s", stay, name), env.host.PolicyV1().PodDisruptionBudgets(env.space.HostNamespace()).Get,
		env.space.HostName("default", name, translate.LimitLabel), func(h *policyv1.PodDisruptionBudget) error {
			if h.Spec.MinAvailable.IntValue() != stay || int(h.Status.DisruptionsAllowed) != may || h.Status.ObservedGeneration != h.Generation {
				return fmt.Errorf("%v must stay, %d may go", h.Spec.MinAvailable, h.Status.DisruptionsAllowed)
			}
			return nil
		})
}

// S1, S8: where it is enabled, a drain of the host heeds a budget, and ends.
func TestABudgetIsHeededWithinBounds(t *testing.T) {
	t.Parallel()
	env := synced(t, "budget", "poddisruptionbudgets=on")
	for _, name := range []string{"all", "more"} { // two: the host would evict none of the pods that are under both
		env.holdsBack(t, name)
	}
	deployment := newDeployment("web", 3)
	must(t, env.virtual.AppsV1().Deployments("default").Create, deployment)
	env.budgeted(t, "all", 2, 1)
	env.budgeted(t, "more", 0, 0)

	if err := env.kill(); err != nil { // so that nothing takes the place of what is evicted
		t.Fatal(err)
	}
	theirs := env.host.CoreV1().Pods(env.space.HostNamespace())
	pods, err := theirs.List(t.Context(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(deployment.Spec.Selector)})
	if err != nil || len(pods.Items) != 3 {
		t.Fatalf("pods on the host are %v, %v", pods.Items, err)
	}
	evict := func(ctx context.Context, pod corev1.Pod) error {
		return env.host.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}})
	}
	if err := evict(t.Context(), pods.Items[0]); err != nil {
		t.Errorf("the first is not evicted: %v", err)
	}
	if err := evict(t.Context(), pods.Items[1]); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the second, when two are left and must stay: %v", err)
	}
	env.begin(nil)
	testhost.Eventually(t, "evict the second once there is another pod", func(ctx context.Context) error { return evict(ctx, pods.Items[1]) })
}

// S1, S8: pods that come under another budget leave one behind. Neither budget
// changes in the space, and both count anew on the host.
func TestBudgetsCountThePodsThatTheyHave(t *testing.T) {
	t.Parallel()
	env := synced(t, "budget-moves", "poddisruptionbudgets=on")
	env.holdsBack(t, "b")
	must(t, env.virtual.AppsV1().Deployments("default").Create, newDeployment("web", 3))
	env.budgeted(t, "b", 2, 1)
	env.holdsBack(t, "a") // the first by name has the pods
	env.budgeted(t, "a", 2, 1)
	env.budgeted(t, "b", 0, 0)
	if err := env.virtual.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.budgeted(t, "b", 2, 1)
}
