// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
)

const (
	slowLength = 10_000
	slowMatch  = "object.?data.x.orValue('').matches('(?:a?){1000}(?:a?){240}b')"
	// What goroutines have in their stacks that evaluate policies, and nothing else has.
	evaluatesValidating = "policy/validating.(*validator).Validate("
	evaluatesConditions = "webhook/matchconditions.(*matcher).Match("
	evaluatesMutating   = "policy/mutating.(*dispatcher).dispatchInvocations("
)

// evaluations is how many goroutines of the process evaluate policies.
func evaluations() int {
	stacks := make([]byte, 8<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	n := 0
	for goroutine := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(goroutine, evaluatesValidating) || strings.Contains(goroutine, evaluatesMutating) || strings.Contains(goroutine, evaluatesConditions) {
			n++
		}
	}
	return n
}

func slowValidatingPolicy(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	p := policy("slow")
	for range 4 {
		p.Spec.Validations = append(p.Spec.Validations, admissionv1.Validation{Expression: slowMatch + " || true"})
	}
	bind(t, client, p)
}

func slowMutatingPolicy(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	rules := policy("slow").Spec.MatchConstraints
	p := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Spec: admissionv1.MutatingAdmissionPolicySpec{
		MatchConstraints: rules, ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
	}}
	for range 4 {
		p.Spec.Mutations = append(p.Spec.Mutations, admissionv1.Mutation{
			PatchType: admissionv1.PatchTypeJSONPatch,
			JSONPatch: &admissionv1.JSONPatch{Expression: slowMatch + ` ? [JSONPatch{op: "add", path: "/data/y", value: "z"}] : []`},
		})
	}
	if _, err := client.AdmissionregistrationV1().MutatingAdmissionPolicies().Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "slow"}}
	if _, err := client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// slowConditions are those of webhooks that are never called.
func slowConditions(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	c := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "slow"}}
	for i := range 4 {
		c.Webhooks = append(c.Webhooks, admissionv1.ValidatingWebhook{
			Name: fmt.Sprintf("slow-%d.example.com", i), ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To("https://203.0.113.1")},
			SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			Rules:           []admissionv1.RuleWithOperations{policy("slow").Spec.MatchConstraints.ResourceRules[0].RuleWithOperations},
			MatchConditions: []admissionv1.MatchCondition{{Name: "slow", Expression: slowMatch + " && false"}},
		})
	}
	if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// L3: a regular expression is matched before CEL counts what it costs, which takes seconds, and nothing interrupts it. A space has
// half of the processors for policies, however many clients it has, and other spaces answer.
func TestHostilePoliciesThatAreEvaluatedForLongWaitForEachOther(t *testing.T) {
	for name, install := range map[string]func(*testing.T, kubernetes.Interface){
		"validating": slowValidatingPolicy, "mutating": slowMutatingPolicy, "conditions": slowConditions,
	} {
		t.Run(name, func(t *testing.T) { hammerPolicies(t, install) })
	}
}

func hammerPolicies(t *testing.T, install func(*testing.T, kubernetes.Interface)) {
	door := openFrontDoor(t)
	hostile, quiet := door.config(t, "hostile"), door.config(t, "quiet")
	hostile.Controllers, quiet.Controllers = nil, nil
	hostile.Account = bounds.NewAccount(nil)
	attacker, other := clientset(t, admin(t, door.start(t, hostile))), clientset(t, admin(t, door.start(t, quiet)))
	install(t, attacker)
	create := func(ctx context.Context, client kubernetes.Interface, length int) error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"}, Data: map[string]string{"x": strings.Repeat("a", length) + "b"}}
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{})
		return err
	}
	// The policy is in force once a policy that refuses, made after it, is.
	never := policy("never")
	never.Spec.Validations = []admissionv1.Validation{{Expression: "!has(object.metadata.labels)", Reason: ptr.To(metav1.StatusReasonForbidden)}}
	bind(t, attacker, never)
	eventually(t, func() error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-", Labels: map[string]string{"a": "b"}}}
		if _, err := attacker.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the policies are not in force: %w", err)
		}
		return nil
	})
	// Mutating policies find a kind's schema later, and may come into force later than the others.
	eventually(t, func() error { return create(t.Context(), attacker, 1) })
	slots := max(1, runtime.GOMAXPROCS(0)/2)
	ctx, end := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 4 * slots {
		clients.Go(func() {
			for ctx.Err() == nil {
				if err := create(ctx, attacker, slowLength); err != nil && ctx.Err() == nil && !apierrors.IsTooManyRequests(err) && !strings.Contains(err.Error(), "There can be a delay") {
					t.Errorf("a client of the hostile space: %v", err)
				}
			}
		})
	}
	most := 0
	for answered := 0; answered < 20 || most == 0; {
		most = max(most, evaluations())
		if most > slots {
			break
		}
		if err := create(t.Context(), other, slowLength); err != nil {
			t.Fatalf("the other space: %v", err)
		}
		if _, err := attacker.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 1}); err != nil {
			t.Errorf("a list in the hostile space: %v", err)
		}
		answered++
	}
	if most > slots {
		t.Errorf("%d policies are evaluated at once, by %d processors", most, slots)
	}
	end()
	clients.Wait()
	eventually(t, func() error {
		if held := hostile.Account.Memory(); held != 0 {
			return fmt.Errorf("%d bytes are held", held)
		}
		return create(t.Context(), attacker, 1)
	})
}

// L3: the JSON patch that a policy makes copies a list for each element that it inserts, and a value for each level of its path. What
// it makes is not known before, so an object for which it may take too long is refused.
func TestHostilePatchesOfPoliciesAreBounded(t *testing.T) {
	_, _, config := bounded(t, nil)
	client := clientset(t, config)
	slowMutatingPolicy(t, client)
	create := func(finalizers int) error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"}, Data: map[string]string{"x": "x"}}
		for range finalizers {
			m.Finalizers = append(m.Finalizers, "example.com/a")
		}
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	eventually(t, func() error {
		if err := create(2001); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit patch-steps") {
			return fmt.Errorf("an object with a list of 2001 elements gets %w", err)
		}
		return nil
	})
	eventually(t, func() error { return create(1900) })
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"}}
	for range 2001 {
		s.Finalizers = append(s.Finalizers, "example.com/a")
	}
	if _, err := client.CoreV1().Secrets("default").Create(t.Context(), s, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("an object that the policy is not for: %v", err)
	}
}
