// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expression compiles and evaluates the CEL expressions of Publications and of patches. The operator compiles those of Publications
// to check them, and platforms to render copies. What an evaluation may cost, and how large its value may be, is limited.
//
// Expressions have the functions of Kubernetes' own, as in admission policies.
package expression

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

const (
	// CostLimit is what an evaluation may cost, a tenth of what one of an admission policy may.
	CostLimit = 100_000
	// Timeout limits the time of an evaluation. The cost limit ends almost all of them earlier.
	Timeout = time.Second
	// checkFrequency is after how many iterations of a loop the timeout is checked.
	checkFrequency = 100
)

// Budget limits what all expressions of one object cost, and how large their values are. It is used by one goroutine at a time.
type Budget struct {
	bytes int
	cost  uint64
}

// NewBudget returns the budget of one object, whose expressions may cost so much together.
func NewBudget(cost uint64) *Budget { return &Budget{bytes: MaxValueBytes, cost: cost} }

// Compiler compiles expressions. It is safe for concurrent use.
type Compiler struct{ env *cel.Env }

// Program is a compiled expression. It is safe for concurrent use.
type Program struct{ program cel.Program }

// Subject is what an expression knows of a tenant or of a space.
type Subject struct {
	Name   string
	Labels map[string]string
}

// Input are the variables of an expression.
type Input struct {
	// Tenant is empty for a space without a tenant.
	Tenant, Space Subject
	// Object is the source.
	Object map[string]any
	// Value is what the copy has now in the field that is set; nil if it has nothing there.
	Value any
}

// NewCompiler returns a compiler of the expressions of Publications. It is costly to make, and cheap to keep.
func NewCompiler() (*Compiler, error) {
	return newCompiler(subjectType("Tenant", true), subjectType("Space", true))
}

// NewPatchCompiler returns a compiler of the expressions of patches, which know no labels of the tenant and of the space.
func NewPatchCompiler() (*Compiler, error) {
	return newCompiler(subjectType("Tenant", false), subjectType("Space", false))
}

func newCompiler(tenant, space *apiservercel.DeclType) (*Compiler, error) {
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable("tenant", tenant.CelType()), cel.Variable("space", space.CelType()), cel.Variable("object", cel.DynType), cel.Variable("value", cel.DynType),
		},
		DeclTypes: []*apiservercel.DeclType{tenant, space},
	})
	if err != nil {
		return nil, fmt.Errorf("make environment for expressions: %w", err)
	}
	return &Compiler{env: set.StoredExpressionsEnv()}, nil
}

func subjectType(name string, hasLabels bool) *apiservercel.DeclType {
	fields := map[string]*apiservercel.DeclField{"name": apiservercel.NewDeclField("name", apiservercel.StringType, true, nil, nil)}
	if hasLabels {
		labels := apiservercel.NewMapType(apiservercel.StringType, apiservercel.StringType, -1)
		fields["labels"] = apiservercel.NewDeclField("labels", labels, true, nil, nil)
	}
	return apiservercel.NewObjectType("berth.dev."+name, fields)
}

// Compile compiles an expression. The error is for the author of the expression.
func (c *Compiler) Compile(expression string) (*Program, error) {
	ast, issues := c.env.Compile(expression)
	if issues.Err() != nil {
		return nil, fmt.Errorf("compile the expression: %s", oneLine(issues.String()))
	}
	if kind := ast.OutputType(); !isJSON(kind) {
		return nil, fmt.Errorf("the expression returns a value of type %s, which has no form in JSON; convert it, for example by string()", kind)
	}
	program, err := c.env.Program(ast, cel.CostLimit(CostLimit), cel.InterruptCheckFrequency(checkFrequency))
	if err != nil {
		return nil, fmt.Errorf("compile the expression: %s", oneLine(err.Error()))
	}
	return &Program{program: program}, nil
}

func isJSON(kind *cel.Type) bool {
	switch kind.Kind() {
	case types.BoolKind, types.BytesKind, types.DoubleKind, types.DynKind, types.AnyKind, types.IntKind, types.ListKind, types.MapKind, types.NullTypeKind,
		types.StringKind, types.UintKind:
		return true
	default:
		return false
	}
}

// Evaluate returns the value as JSON has it: nil, a bool, a string, an int64, a float64, or a list or map of these. It takes
// what the evaluation costs, and the size of the value, from the budget.
func (p *Program) Evaluate(ctx context.Context, input Input, budget *Budget) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	value, details, err := p.program.ContextEval(ctx, map[string]any{
		"tenant": input.Tenant.value(), "space": input.Space.value(), "object": adapter{}.NativeToValue(input.Object),
		"value": adapter{}.NativeToValue(input.Value),
	})
	switch {
	case err != nil && strings.Contains(err.Error(), "actual cost limit exceeded"): // cel-go has no other sign of it
		return nil, errors.New("the expression costs too much; loop over fewer elements")
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("the expressions of the object take too long (%w); loop over fewer elements", ctx.Err())
	case err != nil:
		return nil, fmt.Errorf("evaluate the expression: %s", oneLine(err.Error()))
	}
	cost := details.ActualCost()
	if cost == nil || *cost > budget.cost {
		return nil, errors.New("the expressions of the object cost too much together; loop over fewer elements, or set fewer fields")
	}
	budget.cost -= *cost
	return convert(value, &budget.bytes, 0)
}

func (s Subject) value() map[string]any {
	labels := s.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	return map[string]any{"name": s.Name, "labels": labels}
}

// oneLine returns the parts of a message of cel-go that fit into a condition.
func oneLine(message string) string {
	return strings.Join(strings.Fields(message), " ")
}
