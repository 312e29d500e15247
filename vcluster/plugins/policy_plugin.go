// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"io"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/berth-dev/berth/bounds"
)

// New are upstream's, with those for policies in the form that bounds their patches and the values of their variables.
// Upstream ends the process when a name is registered twice. What the plugins keep is accounted to the space.
func New(account *bounds.Account) *admission.Plugins {
	plugins := admission.NewPlugins()
	kubeoptions.RegisterAllAdmissionPlugins(plugins)
	lifecycle.Register(plugins)
	validatingwebhook.Register(plugins)
	mutatingwebhook.Register(plugins)
	plugins.Register(validatingpolicy.PluginName, newValidatingPolicies)
	plugins.Register(mutatingpolicy.PluginName, func(io.Reader) (admission.Interface, error) { return newMutatingPolicies(account), nil })
	return plugins
}

// newMutatingPolicies returns upstream's plugin with another way to compile policies.
func newMutatingPolicies(account *bounds.Account) admission.Interface {
	return &mutatingpolicy.Plugin{Plugin: generic.NewPlugin(
		admission.NewHandler(admission.Create, admission.Update, admission.Connect),
		func(f informers.SharedInformerFactory, _ kubernetes.Interface, client dynamic.Interface, mapper meta.RESTMapper) generic.Source[mutatingpolicy.PolicyHook] {
			registration := f.Admissionregistration().V1()
			return generic.NewPolicySource(
				registration.MutatingAdmissionPolicies().Informer(), registration.MutatingAdmissionPolicyBindings().Informer(),
				mutatingpolicy.NewMutatingAdmissionPolicyAccessor, mutatingpolicy.NewMutatingAdmissionPolicyBindingAccessor,
				compileMutations, f, client, mapper)
		},
		func(a authorizer.UnconditionalAuthorizer, m *matching.Matcher, client kubernetes.Interface) generic.Dispatcher[mutatingpolicy.PolicyHook] {
			return mutatingpolicy.NewDispatcher(a, m, newTypeConverters(client.Discovery().OpenAPIV3(), account))
		},
	)}
}

// compileMutations compiles a policy's expressions. Errors are kept until they are evaluated.
func compileMutations(p *admissionv1.MutatingAdmissionPolicy) mutatingpolicy.PolicyEvaluator {
	compiler, err := newPolicyCompiler(p.Spec.ParamKind, p.Spec.Variables)
	if err != nil {
		return mutatingpolicy.PolicyEvaluator{Error: err}
	}
	evaluator := mutatingpolicy.PolicyEvaluator{
		CompositedCompiler: compiler.CompositedCompiler, Matcher: compiler.matcher(p.Spec.MatchConditions, p.Spec.FailurePolicy, p.Name),
	}
	known := compiler.known
	known.HasPatchTypes = true
	compile := func(e plugincel.ExpressionAccessor) plugincel.MutatingEvaluator {
		return boundedPatch{compiler.CompileMutatingEvaluator(e, known, environment.StoredExpressions)}
	}
	for _, m := range p.Spec.Mutations {
		switch {
		case m.PatchType == admissionv1.PatchTypeJSONPatch && m.JSONPatch != nil:
			evaluator.Mutators = append(evaluator.Mutators, patch.NewJSONPatcher(compile(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression})))
		case m.PatchType == admissionv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			evaluator.Mutators = append(evaluator.Mutators,
				patch.NewApplyConfigurationPatcher(compile(&patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression})))
		}
	}
	return evaluator
}

// newValidatingPolicies returns upstream's plugin with another way to compile policies.
func newValidatingPolicies(io.Reader) (admission.Interface, error) {
	p := &validatingpolicy.Plugin{Plugin: generic.NewPlugin(
		admission.NewHandler(admission.Connect, admission.Create, admission.Delete, admission.Update),
		func(f informers.SharedInformerFactory, _ kubernetes.Interface, client dynamic.Interface, mapper meta.RESTMapper) generic.Source[validatingpolicy.PolicyHook] {
			registration := f.Admissionregistration().V1()
			return generic.NewPolicySource(
				registration.ValidatingAdmissionPolicies().Informer(), registration.ValidatingAdmissionPolicyBindings().Informer(),
				validatingpolicy.NewValidatingAdmissionPolicyAccessor, validatingpolicy.NewValidatingAdmissionPolicyBindingAccessor,
				compileValidations, f, client, mapper)
		},
		func(a authorizer.UnconditionalAuthorizer, m *matching.Matcher, _ kubernetes.Interface) generic.Dispatcher[validatingpolicy.PolicyHook] {
			return validatingpolicy.NewDispatcher(a, generic.NewPolicyMatcher(m))
		},
	)}
	p.SetEnabled(true)
	return p, nil
}

// compileValidations compiles a policy's expressions. Errors are kept until they are evaluated.
func compileValidations(p *admissionv1.ValidatingAdmissionPolicy) validatingpolicy.Validator {
	compiler, err := newPolicyCompiler(p.Spec.ParamKind, p.Spec.Variables)
	if err != nil {
		return validatingpolicy.NewValidator(nil, nil, nil, nil, p.Spec.FailurePolicy, err)
	}
	// Upstream finds a validation's message by its index: one without has no accessor.
	validations, messages := make([]plugincel.ExpressionAccessor, len(p.Spec.Validations)), make([]plugincel.ExpressionAccessor, len(p.Spec.Validations))
	for i, v := range p.Spec.Validations {
		validations[i] = &validatingpolicy.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason}
		if v.MessageExpression != "" {
			messages[i] = &validatingpolicy.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
	}
	annotations := make([]plugincel.ExpressionAccessor, len(p.Spec.AuditAnnotations))
	for i, a := range p.Spec.AuditAnnotations {
		annotations[i] = &validatingpolicy.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression}
	}
	withoutAuthorizer := compiler.known
	withoutAuthorizer.HasAuthorizer = false
	return validatingpolicy.NewValidator(
		compiler.conditions(validations, compiler.known), compiler.matcher(p.Spec.MatchConditions, p.Spec.FailurePolicy, p.Name),
		compiler.conditions(annotations, compiler.known), compiler.conditions(messages, withoutAuthorizer), p.Spec.FailurePolicy, nil)
}

// policyCompiler compiles the expressions of one policy.
type policyCompiler struct {
	*plugincel.CompositedCompiler
	// known is what expressions may use besides the policy's variables.
	known plugincel.OptionalVariableDeclarations
}

func newPolicyCompiler(params *admissionv1.ParamKind, variables []admissionv1.Variable) (policyCompiler, error) {
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return policyCompiler{}, err
	}
	known := plugincel.OptionalVariableDeclarations{HasParams: params != nil, HasAuthorizer: true}
	compiler.Compiler = accountedVariables{compiler.Compiler}
	for _, v := range variables {
		compiler.CompileAndStoreVariable(&validatingpolicy.Variable{Name: v.Name, Expression: v.Expression}, known, environment.StoredExpressions)
	}
	return policyCompiler{compiler, known}, nil
}

func (c policyCompiler) conditions(expressions []plugincel.ExpressionAccessor, known plugincel.OptionalVariableDeclarations) plugincel.ConditionEvaluator {
	return accountedConditions{c.CompileCondition(expressions, known, environment.StoredExpressions)}
}

// matcher returns nil if there are no conditions.
func (c policyCompiler) matcher(conditions []admissionv1.MatchCondition, onFailure *admissionv1.FailurePolicyType, policy string) matchconditions.Matcher {
	if len(conditions) == 0 {
		return nil
	}
	expressions := make([]plugincel.ExpressionAccessor, len(conditions))
	for i := range conditions {
		expressions[i] = (*matchconditions.MatchCondition)(&conditions[i])
	}
	return matchconditions.NewMatcher(c.conditions(expressions, c.known), onFailure, "policy", "validate", policy)
}
