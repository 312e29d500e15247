// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
)

// thingGroup is of a resource whose objects may hold anything.
const thingGroup = "hostile.example.com"

func (a *attacked) resource(group, resource string) dynamic.ResourceInterface {
	return a.attacker.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource})
}

// defineThings makes the definition, and waits until things can be made.
func (a *attacked) defineThings(t *testing.T) {
	t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "things.hostile.example.com"},
		"spec": map[string]any{
			"group": thingGroup, "scope": "Cluster", "names": map[string]any{"plural": "things", "singular": "thing", "kind": "Thing"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	}}
	if _, err := a.resource("apiextensions.k8s.io", "customresourcedefinitions").Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return a.makeThing(t.Context(), nil) })
}

// makeThing has a thing admitted, which is not stored.
func (a *attacked) makeThing(ctx context.Context, fields map[string]any) error {
	thing := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "hostile.example.com/v1", "kind": "Thing", "metadata": map[string]any{"generateName": "thing-"}, "spec": fields,
	}}
	_, err := a.resource(thingGroup, "things").Create(ctx, thing, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func thingRules() []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{thingGroup}, APIVersions: []string{"*"}, Resources: []string{"*"}},
	}}
}

func thingMatches() *admissionv1.MatchResources {
	m := &admissionv1.MatchResources{}
	for _, r := range thingRules() {
		m.ResourceRules = append(m.ResourceRules, admissionv1.NamedRuleWithOperations{RuleWithOperations: r})
	}
	return m
}

// validate binds a policy with an expression and variables v0, v1 and so on. The function that is returned takes it away.
func (a *attacked) validate(t *testing.T, expression string, variables ...string) (remove func()) {
	t.Helper()
	name := unusedName()
	policies, bindings := a.attacker.AdmissionregistrationV1().ValidatingAdmissionPolicies(), a.attacker.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: thingMatches(), Validations: []admissionv1.Validation{{Expression: expression}},
	}}
	for i, v := range variables {
		policy.Spec.Variables = append(policy.Spec.Variables, admissionv1.Variable{Name: fmt.Sprintf("v%d", i), Expression: v})
	}
	_, err := policies.Create(t.Context(), policy, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = bindings.Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return func() { removeAll(t, name, bindings, policies) }
}

// unusedName is one that no policy had before. One that is created under the name of another that is being removed may bind the
// other's expression for a moment.
func unusedName() string { return "hostile-" + utilrand.String(5) }

type deleter interface {
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// removeAll removes an object of each kind.
func removeAll(t *testing.T, name string, kinds ...deleter) {
	t.Helper()
	for _, kind := range kinds {
		if err := kind.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// mutate binds a policy that makes a JSON patch.
func (a *attacked) mutate(t *testing.T, expression string) (remove func()) {
	t.Helper()
	name := unusedName()
	policies, bindings := a.attacker.AdmissionregistrationV1().MutatingAdmissionPolicies(), a.attacker.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	if _, err := policies.Create(t.Context(), &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: thingMatches(), ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: expression}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := bindings.Create(t.Context(), &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return func() { removeAll(t, name, bindings, policies) }
}

// condition has a webhook called on a condition. It is never called: the address is one that none has.
func (a *attacked) condition(t *testing.T, expression string) (remove func()) {
	t.Helper()
	name := unusedName()
	hooks, url, none := a.attacker.AdmissionregistrationV1().ValidatingWebhookConfigurations(), "https://203.0.113.1", admissionv1.SideEffectClassNone
	if _, err := hooks.Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "hostile.example.com", ClientConfig: admissionv1.WebhookClientConfig{URL: &url}, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			Rules: thingRules(), MatchConditions: []admissionv1.MatchCondition{{Name: "hostile", Expression: "!(" + expression + ")"}},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return func() { removeAll(t, name, hooks) }
}

// list is one of numbers, with a last one.
func list(n, last int) []any {
	l := make([]any, n, n+1)
	for i := range l {
		l[i] = int64(1)
	}
	return append(l, int64(last))
}

// L3: an expression that takes long, or makes much, is ended by what it costs, soon, and the request is answered. Before, each of
// these took as long as a request may, or hundreds of MiB.
func TestHostileExpressionsEndByWhatTheyCost(t *testing.T) {
	a := attack(t)
	a.defineThings(t)
	const numbers = 4000 // as many as an object may have
	lists := map[string]any{"list": list(numbers, 2), "lists": []any{list(numbers, 3), list(numbers, 4), list(numbers, 5), list(numbers, 6)}}
	texts := map[string]any{"text": strings.Repeat("a", 700_000), "other": strings.Repeat("a", 700_000) + "b", "short": strings.Repeat("a", 2800)}
	variables, uses := []string{}, []string{}
	for i := range 200 {
		variables = append(variables, "object.spec.short.replace('a', object.spec.short)")
		uses = append(uses, fmt.Sprintf("(variables.v%d != '' ? 1 : 0)", i))
	}
	loop := func(inner string) string { return "lists.range(50000).all(i, " + inner + ")" }
	for name, c := range map[string]struct {
		fields map[string]any
		bind   func() (remove func())
	}{
		"in":   {lists, func() func() { return a.validate(t, loop("!(object.spec.list in object.spec.lists)")) }},
		"sort": {lists, func() func() { return a.validate(t, loop("object.spec.list.sort().size() > 0")) }},
		"sets": {lists, func() func() {
			return a.validate(t, loop("!sets.contains([object.spec.list], [object.spec.lists[0]])"))
		}},
		"charAt":     {texts, func() func() { return a.validate(t, loop("object.spec.text.charAt(0) == 'a'")) }},
		"order":      {texts, func() func() { return a.validate(t, loop("object.spec.text < object.spec.other")) }},
		"condition":  {lists, func() func() { return a.condition(t, loop("!(object.spec.list in object.spec.lists)")) }},
		"conversion": {texts, func() func() { return a.condition(t, loop("(int(object.spec.text) == 1 || true)")) }},
		"variables":  {texts, func() func() { return a.validate(t, strings.Join(uses, " + ")+" > 0", variables...) }},
		"patch": {texts, func() func() {
			return a.mutate(t, `[JSONPatch{op: "add", path: "/spec/text", value: object.spec.short.replace('a', '`+strings.Repeat("<", 2000)+`')}]`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			remove := c.bind()
			defer remove()
			// The policy is in force once something is refused for what it costs.
			eventually(t, func() error {
				if err := a.makeThing(t.Context(), c.fields); !endedByBounds(err) {
					return fmt.Errorf("the first says %w", err)
				}
				return nil
			})
			var clients sync.WaitGroup
			for range 4 {
				clients.Go(func() {
					for range 2 {
						if err := a.makeThing(t.Context(), c.fields); !endedByBounds(err) && !apierrors.IsTooManyRequests(err) {
							t.Errorf("one of many says %v", err)
						}
					}
				})
			}
			clients.Wait()
		})
		// Its policy is in force no more once what it refused is admitted.
		eventually(t, func() error { return a.makeThing(t.Context(), c.fields) })
	}
	a.survives(t)
}

// endedByBounds reports whether an expression ended for what it cost, or was refused before.
func endedByBounds(err error) bool {
	return err != nil && slices.ContainsFunc([]string{"cost limit exceeded", "cost budget", "limit match-steps", "limit expression-bytes", "limit patch-steps", "memory-bytes"},
		func(says string) bool { return strings.Contains(err.Error(), says) })
}
