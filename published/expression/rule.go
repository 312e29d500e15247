// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// RuleCompiler compiles rules: expressions about a value, which is self in them, that are true or false. It is safe for concurrent use.
type RuleCompiler struct{ env *cel.Env }

// Rule is a compiled rule. It is safe for concurrent use.
type Rule struct{ program cel.Program }

// NewRuleCompiler returns a compiler of rules. It is costly to make, and cheap to keep.
func NewRuleCompiler() (*RuleCompiler, error) {
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable("self", cel.DynType)},
	})
	if err != nil {
		return nil, fmt.Errorf("make environment for rules: %w", err)
	}
	return &RuleCompiler{env: set.StoredExpressionsEnv()}, nil
}

// Compile compiles a rule. The error is for its author.
func (c *RuleCompiler) Compile(text string) (*Rule, error) {
	ast, issues := c.env.Compile(text)
	if issues.Err() != nil {
		return nil, fmt.Errorf("compile the rule: %s", oneLine(issues.String()))
	}
	if kind := ast.OutputType(); !kind.IsExactType(cel.BoolType) && !kind.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("the rule returns a value of type %s; it must return true or false", kind)
	}
	program, err := c.env.Program(ast, cel.CostLimit(CostLimit), cel.InterruptCheckFrequency(checkFrequency))
	if err != nil {
		return nil, fmt.Errorf("compile the rule: %s", oneLine(err.Error()))
	}
	return &Rule{program: program}, nil
}

// Holds reports whether a rule is true of a value, which is as in JSON. What it can't evaluate, such as an expression that costs more than
// [CostLimit], is an error.
func (r *Rule) Holds(ctx context.Context, self any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	result, _, err := r.program.ContextEval(ctx, map[string]any{"self": self})
	if err != nil {
		return false, fmt.Errorf("evaluate the rule: %s", oneLine(err.Error()))
	}
	holds, ok := result.Value().(bool)
	if !ok {
		return false, errors.New("evaluate the rule: its result is neither true nor false")
	}
	return holds, nil
}
