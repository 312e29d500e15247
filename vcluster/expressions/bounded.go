// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// bound is what holds a function's calls to the work that they are.
type bound struct {
	// check is called before a call, which nothing interrupts. It may be nil.
	check func([]ref.Val) error
	// cost is counted after a call. If it is nil, the cost is upstream's.
	cost interpreter.FunctionTracker
	// typed is what a call costs if the types of its arguments are known before. If it is nil, it is cost.
	typed interpreter.FunctionTracker
}

// Upstream counts many costs by the overload that is called. It is not known of arguments whose types are not known before, and
// such calls cost one. These are the overloads of all calls whose cost is counted here.
func overloadOf(function string, typed bool) string {
	if typed {
		return "counted_typed " + function
	}
	return "counted " + function
}

// bounded is a call that is checked before, and counted by what it handles.
type bounded struct {
	interpreter.InterpretableCall
	bound bound
	calls *functions.Overload
}

func (b bounded) OverloadID() string {
	overload := b.InterpretableCall.OverloadID()
	if b.bound.cost == nil {
		return overload
	}
	return overloadOf(b.Function(), overload != "")
}

func (b bounded) Eval(vars interpreter.Activation) ref.Val {
	return b.Exec(interpreter.AsFrame(vars))
}

// Exec is what upstream calls.
func (b bounded) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := make([]ref.Val, len(b.Args()))
	for i, a := range b.Args() {
		args[i] = a.Exec(frame)
	}
	for _, v := range args {
		if types.IsUnknownOrError(v) {
			return v
		}
	}
	if b.bound.check != nil {
		if err := b.bound.check(args); err != nil {
			return types.LabelErrNode(b.ID(), types.WrapErr(refusal{err}))
		}
	}
	return types.LabelErrNode(b.ID(), invoke(b.calls, b.Function(), args))
}

// refusal is why a call was not made.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// costOfRefusal is what checks cost that refuse a call: they read some of the arguments. It is a small part of what an expression
// may cost, as it must not hide why the call was refused, but an expression may go on after an error.
const costOfRefusal = 50_000

// unlessRefused is the cost of calls that were made, or failed for another reason.
func unlessRefused(cost interpreter.FunctionTracker) interpreter.FunctionTracker {
	return func(args []ref.Val, result ref.Val) *uint64 {
		if err, ok := result.(*types.Err); ok && errors.As(err, new(refusal)) {
			return new(uint64(costOfRefusal))
		}
		return cost(args, result)
	}
}

// invoke calls a function as upstream does.
func invoke(o *functions.Overload, function string, args []ref.Val) ref.Val {
	switch {
	case o.OperandTrait != 0 && !args[0].Type().HasTrait(o.OperandTrait):
	case o.Unary != nil && len(args) == 1:
		return o.Unary(args[0])
	case o.Binary != nil && len(args) == 2:
		return o.Binary(args[0], args[1])
	case o.Function != nil:
		return o.Function(args...)
	}
	return decls.MaybeNoSuchOverload(function, args...)
}

// boundCalls has functions of an environment checked and counted.
func boundCalls(e *cel.Env) (*cel.Env, error) {
	table := boundedCalls()
	known := map[string]map[string]*functions.Overload{}
	for function := range table {
		declared, ok := e.Functions()[function]
		if !ok { // as in an environment for an earlier version
			continue
		}
		overloads, err := bindings(declared)
		if err != nil {
			return nil, fmt.Errorf("bound calls of %s: %w", function, err)
		}
		known[function] = overloads
	}
	known[operators.Equals] = map[string]*functions.Overload{operators.Equals: {Binary: types.Equal}}
	known[operators.NotEquals] = map[string]*functions.Overload{operators.NotEquals: {Binary: func(a, b ref.Val) ref.Val {
		return types.Bool(types.Equal(a, b) != types.True)
	}}}
	options := programOptions{cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, ok := i.(interpreter.InterpretableCall)
		if !ok {
			return i, nil
		}
		overloads, ok := known[call.Function()]
		if !ok || isMembership(call) {
			return i, nil
		}
		calls, ok := overloads[call.OverloadID()]
		if !ok {
			calls = overloads[call.Function()]
		}
		if calls == nil {
			return nil, fmt.Errorf("overload %q of %s is not known", call.OverloadID(), call.Function())
		}
		return bounded{call, table[call.Function()], calls}, nil
	})}
	for function, b := range table {
		if b.cost == nil {
			continue
		}
		typed := b.typed
		if typed == nil {
			typed = b.cost
		}
		options = append(options, cel.CostTrackerOptions(
			interpreter.OverloadCostTracker(overloadOf(function, false), unlessRefused(b.cost)),
			interpreter.OverloadCostTracker(overloadOf(function, true), unlessRefused(typed)),
		))
	}
	return cel.Lib(options)(e)
}

// bindings are a function's, by overload, and the one for all overloads by its name. Each overload has one, or all have that one.
func bindings(f *decls.FunctionDecl) (map[string]*functions.Overload, error) {
	all, err := f.Bindings()
	if err != nil {
		return nil, err
	}
	by := map[string]*functions.Overload{}
	for _, b := range all {
		by[b.Operator] = b
	}
	if by[f.Name()] == nil {
		return nil, fmt.Errorf("nothing is called for %s", f.Name())
	}
	for _, o := range f.OverloadDecls() {
		if len(all) > 1 && by[o.ID()] == nil {
			return nil, fmt.Errorf("nothing is called for %s", o.ID())
		}
	}
	return by, nil
}

// isMembership reports whether a call is one of the operator in with a literal list, which upstream looks up in a set.
func isMembership(call interpreter.InterpretableCall) bool {
	if call.Function() != operators.In || len(call.Args()) != 2 {
		return false
	}
	_, literal := call.Args()[1].(interpreter.InterpretableConst)
	return literal
}

// programOptions are a library of nothing else.
type programOptions []cel.ProgramOption

func (programOptions) CompileOptions() []cel.EnvOption       { return nil }
func (o programOptions) ProgramOptions() []cel.ProgramOption { return o }
