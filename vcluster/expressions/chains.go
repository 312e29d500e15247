// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/parser"
)

// maxChain is how many calls of optMap and optFlatMap may follow each other. Each copies all that comes before it: twenty of them
// in 350 characters would take minutes and gigabytes to compile, which nothing interrupts.
const maxChain = 3

// boundChains refuses long chains of the macros that copy what they are called on.
func boundChains(e *cel.Env) (*cel.Env, error) {
	var bounded []cel.Macro
	for _, m := range e.Macros() {
		if name := m.Function(); m.IsReceiverStyle() && (name == "optMap" || name == "optFlatMap") {
			bounded = append(bounded, cel.ReceiverMacro(name, m.ArgCount(), boundChain(m)))
		}
	}
	return cel.Macros(bounded...)(e)
}

func boundChain(m cel.Macro) parser.MacroExpander {
	return func(help parser.ExprHelper, target ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
		// What was expanded asks once whether it has a value, and so do its copies.
		if asked := calls(target, "hasValue"); asked >= 1<<maxChain-1 {
			return nil, help.NewError(target.ID(), fmt.Sprintf(
				"%s follows more than %d calls of optMap and optFlatMap: use variables, or call it within the one before", m.Function(), maxChain))
		}
		return m.Expander()(help, target, args)
	}
}

// calls counts the calls of a function in an expression.
func calls(in ast.Expr, function string) (n int) {
	ast.PostOrderVisit(in, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == function {
			n++
		}
	}))
	return n
}
