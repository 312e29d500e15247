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
	gateway := newTestGateway(t)
	hostile, quiet := gateway.config(t, "hostile"), gateway.config(t, "quiet")
	hostile.Controllers, quiet.Controllers = nil, nil
	hostile.Account = bounds.NewAccount(nil)
	attacker, other := clientset(t, admin(t, gateway.start(t, hostile))), clientset(t, admin(t, gateway.start(t, quiet)))
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

// mutate puts a policy in force that patches config maps.
func mutate(t *testing.T, client kubernetes.Interface, name string, mutations ...admissionv1.Mutation) {
	t.Helper()
	p := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicySpec{
		MatchConstraints: policy(name).Spec.MatchConstraints, ReinvocationPolicy: admissionv1.NeverReinvocationPolicy, Mutations: mutations,
		MatchConditions: []admissionv1.MatchCondition{{Name: "for", Expression: "object.metadata.?labels.policy == optional.of('" + name + "')"}},
	}}
	if _, err := client.AdmissionregistrationV1().MutatingAdmissionPolicies().Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}}
	if _, err := client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func jsonMutation(expression string) admissionv1.Mutation {
	return admissionv1.Mutation{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: expression}}
}

// L3: the JSON patch that a policy makes copies a list for each element that it inserts, and a value for each level of its path, and
// moves make levels. Nothing interrupts that, and a policy can have many mutations. A value that is used often is in the patch as
// often: 10,000 operations of an expression with one text of 1 MB take 10 GB. What a policy makes is checked before it is applied.
func TestHostilePatchesOfPoliciesAreBounded(t *testing.T) {
	account, _, config := bounded(t, nil)
	client := clientset(t, config)
	const (
		insert = `lists.range(4000).map(i, JSONPatch{op: "add", path: "/metadata/finalizers/0", value: "example.com/a"})`
		move   = `[JSONPatch{op: "add", path: "/b", value: {"c": "d"}}, JSONPatch{op: "move", from: "/data", path: "/b/a"}, JSONPatch{op: "move", from: "/b", path: "/data"}]`
	)
	moves := `lists.range(200).map(i, ` + move + `).flatten()`
	several := make([]admissionv1.Mutation, 5)
	for i := range several {
		several[i] = jsonMutation(insert)
	}
	apply := admissionv1.Mutation{PatchType: admissionv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1.ApplyConfiguration{
		Expression: `Object{metadata: Object.metadata{finalizers: lists.range(40).map(i, object.data.x)}}`,
	}}
	const steps, size = "limit patch-steps", "limit expression-bytes"
	for name, c := range map[string]struct {
		mutations []admissionv1.Mutation
		finalizer int
		length    int
		says      string
	}{
		"many":    {[]admissionv1.Mutation{jsonMutation(strings.ReplaceAll(insert, "4000", "8000"))}, 1, 1, steps},
		"several": {several, 1, 1, steps},
		"moves":   {[]admissionv1.Mutation{jsonMutation(moves)}, 0, 900_000, steps},
		"large":   {[]admissionv1.Mutation{jsonMutation(`lists.range(40).map(i, JSONPatch{op: "add", path: "/data/y", value: object.data.x})`)}, 0, 500_000, size},
		"twice":   {[]admissionv1.Mutation{jsonMutation(`[[JSONPatch{op: "add", path: "/data/y", value: "z"}]]` + strings.Repeat(".map(l, l + l)", 18) + "[0]")}, 0, 1, size},
		"applied": {[]admissionv1.Mutation{apply}, 0, 500_000, size},
		"usual":   {[]admissionv1.Mutation{jsonMutation(`[JSONPatch{op: "add", path: "/data/y", value: object.data.x}]`), jsonMutation(`[JSONPatch{op: "copy", from: "/data/y", path: "/data/z"}]`)}, 201, 1000, ""},
	} {
		t.Run(name, func(t *testing.T) {
			mutate(t, client, name, c.mutations...)
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-", Labels: map[string]string{"policy": name}}, Data: map[string]string{"x": strings.Repeat("x", c.length)}}
			for range c.finalizer {
				m.Finalizers = append(m.Finalizers, "example.com/a")
			}
			eventually(t, func() error {
				made, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				switch {
				case c.says == "" && (err != nil || made.Data["z"] != m.Data["x"]):
					return fmt.Errorf("it is not patched: %w", err)
				case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
					return fmt.Errorf("it gets %w", err)
				}
				return nil
			})
		})
	}
	eventually(t, func() error {
		if held := account.Memory(); held != 0 {
			return fmt.Errorf("%d bytes are held", held)
		}
		return nil
	})
}
