// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation/hostpolicy"
)

// evaluator evaluates a policy as an API server does, without the validation that
// comes before it there.
type evaluator struct {
	t         testing.TB
	policy    hostpolicy.Policy
	condition cel.ConditionEvaluator
	namespace *corev1.Namespace
}

func newEvaluator(t testing.TB, policy hostpolicy.Policy, annotations map[string]string) *evaluator {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	var variables []cel.NamedExpressionAccessor
	for _, v := range policy.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, cel.OptionalVariableDeclarations{}, environment.NewExpressions)
	var conditions []cel.ExpressionAccessor
	for _, v := range policy.Validations {
		conditions = append(conditions, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message})
	}
	condition := compiler.CompileCondition(conditions, cel.OptionalVariableDeclarations{}, environment.NewExpressions)
	for _, err := range condition.CompilationErrors() {
		t.Errorf("a host would not take the policy: %v", err)
	}
	return &evaluator{t, policy, condition, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "berth-mine", Labels: map[string]string{"berth.dev/space": "mine"}, Annotations: annotations,
	}}}
}

type write struct {
	resource    schema.GroupVersionResource
	kind        string
	subresource string
	object, old client.Object
	options     runtime.Object
}

// refuses returns the message of the first validation that a write does not meet, or
// empty, and what it cost.
func (e *evaluator) refuses(w write) (message string, cost int64) {
	e.t.Helper()
	operation, object, old, named := admission.Create, runtime.Object(nil), runtime.Object(nil), w.object
	if w.object != nil {
		object = w.object
	}
	if w.old != nil {
		operation, old, named = admission.Update, w.old, w.old
		if w.object == nil {
			operation = admission.Delete
		}
	}
	kind := w.resource.GroupVersion().WithKind(w.kind)
	attributes := admission.NewAttributesRecord(object, old, kind, named.GetNamespace(), named.GetName(), w.resource, w.subresource, operation, w.options, false,
		&user.DefaultInfo{Name: "system:serviceaccount:berth-mine:berth-syncer"})
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind, VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(old)}
	request := cel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(w.resource), metav1.GroupVersionKind(kind))
	results, left, err := e.condition.ForInput(e.t.Context(), versioned, request, cel.OptionalVariableBindings{}, cel.CreateNamespaceObject(e.namespace), celconfig.RuntimeCELCostBudget)
	if err != nil {
		e.t.Fatalf("%s: %v", named.GetName(), err)
	}
	for i, r := range results {
		if r.Error != nil {
			return e.policy.Validations[i].Message + ": " + r.Error.Error(), celconfig.RuntimeCELCostBudget - left
		}
		if r.EvalResult.Value() != true {
			return e.policy.Validations[i].Message, celconfig.RuntimeCELCostBudget - left
		}
	}
	return "", celconfig.RuntimeCELCostBudget - left
}
