// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/expressions"
)

// policyValues are the values of a policy's variables, which are kept until all expressions are evaluated that are evaluated
// together. Upstream counts what they cost once an expression has ended, which may use any number of variables.
type policyValues struct {
	memory *bounds.Reservation // a part of the request's
	cost   uint64
}

type policyValuesKey struct{}

// keepValues returns a context for one evaluation, and what gives back the memory of its values.
func keepValues(ctx context.Context) (context.Context, func()) {
	values := &policyValues{memory: bounds.ReservationOf(ctx).Part()}
	return context.WithValue(ctx, policyValuesKey{}, values), values.memory.End
}

// accountedConditions are expressions of a policy whose variables' values are accounted to the request.
type accountedConditions struct{ plugincel.ConditionEvaluator }

func (c accountedConditions) ForInput(
	ctx context.Context, a *admission.VersionedAttributes, request *admissionv1.AdmissionRequest,
	variables plugincel.OptionalVariableBindings, namespace *corev1.Namespace, budget int64,
) ([]plugincel.EvaluationResult, int64, error) {
	ctx, end := keepValues(ctx)
	defer end()
	return c.ConditionEvaluator.ForInput(ctx, a, request, variables, namespace, budget)
}

// accountedVariables compiles variables.
type accountedVariables struct{ plugincel.Compiler }

func (c accountedVariables) CompileCELExpression(
	e plugincel.ExpressionAccessor, options plugincel.OptionalVariableDeclarations, mode environment.Type,
) plugincel.CompilationResult {
	result := c.Compiler.CompileCELExpression(e, options, mode)
	if result.Program != nil {
		result.Program = accountedVariable{result.Program}
	}
	return result
}

type accountedVariable struct{ cel.Program }

var errVariablesCost = fmt.Errorf("spec.variables cost more than %d, the budget of a policy; make their expressions simpler", int64(celconfig.RuntimeCELCostBudget))

// ContextEval evaluates a variable, and takes the memory of its value from the reservation.
func (v accountedVariable) ContextEval(ctx context.Context, vars any) (ref.Val, *cel.EvalDetails, error) {
	kept, _ := ctx.Value(policyValuesKey{}).(*policyValues)
	if kept == nil {
		return v.Program.ContextEval(ctx, vars)
	}
	if kept.cost > celconfig.RuntimeCELCostBudget {
		return nil, nil, errVariablesCost
	}
	value, details, err := v.Program.ContextEval(ctx, vars)
	if cost := details.ActualCost(); cost != nil {
		kept.cost += *cost
	}
	if err != nil {
		return value, details, err
	}
	if err := kept.memory.Grow(expressions.Memory(value)); err != nil {
		return nil, details, fmt.Errorf("keep the value of a variable: %w", err)
	}
	return value, details, nil
}
