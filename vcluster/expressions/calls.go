// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/berth-dev/berth/bounds"
)

// boundedCalls are functions whose result may be much larger than their arguments, or which compare each part of one argument with each of
// another. CEL counts what a call costs after it, and nothing interrupts it: these check their arguments first.
func boundedCalls() map[string]func([]ref.Val) error {
	return map[string]func([]ref.Val) error{
		"find":            checkFind,
		findAll:           checkFindAll,
		"replace":         checkReplace,
		"join":            checkJoin,
		"format":          checkFormat,
		"lists.range":     checkRange,
		"flatten":         checkFlatten,
		"quantity":        checkQuantity,
		"isQuantity":      checkQuantity,
		"indexOf":         checkIndexOf,
		"lastIndexOf":     checkIndexOf,
		"distinct":        checkDistinct,
		"sets.contains":   checkSets,
		"sets.intersects": checkSets,
		"sets.equivalent": checkSets,
	}
}

// boundCalls puts the checks before functions of an environment.
func boundCalls(e *cel.Env) (*cel.Env, error) {
	for name, check := range boundedCalls() {
		declared, ok := e.Functions()[name]
		if !ok {
			continue
		}
		options, err := checked(declared, check)
		if err != nil {
			return nil, fmt.Errorf("bound calls of %s: %w", name, err)
		}
		if e, err = cel.Function(name, options...)(e); err != nil {
			return nil, fmt.Errorf("bound calls of %s: %w", name, err)
		}
	}
	return e, nil
}

// checked declares a function once more, with a check before each of its overloads.
func checked(f *decls.FunctionDecl, check func([]ref.Val) error) ([]cel.FunctionOpt, error) {
	bindings, err := f.Bindings()
	if err != nil {
		return nil, err
	}
	bound := map[string]*functions.Overload{}
	for _, b := range bindings {
		bound[b.Operator] = b
	}
	var options []cel.FunctionOpt
	for _, o := range f.OverloadDecls() {
		b, ok := bound[o.ID()]
		if !ok {
			continue
		}
		declare := cel.Overload
		if o.IsMemberFunction() {
			declare = cel.MemberOverload
		}
		options = append(options, declare(o.ID(), o.ArgTypes(), o.ResultType(), binding(b, check)))
	}
	return options, nil
}

// binding is an overload's, with a check before it.
func binding(o *functions.Overload, check func([]ref.Val) error) cel.OverloadOpt {
	switch {
	case o.Unary != nil:
		return cel.UnaryBinding(func(v ref.Val) ref.Val {
			if err := check([]ref.Val{v}); err != nil {
				return types.WrapErr(err)
			}
			return o.Unary(v)
		})
	case o.Binary != nil:
		return cel.BinaryBinding(func(a, b ref.Val) ref.Val {
			if err := check([]ref.Val{a, b}); err != nil {
				return types.WrapErr(err)
			}
			return o.Binary(a, b)
		})
	}
	return cel.FunctionBinding(func(args ...ref.Val) ref.Val {
		if err := check(args); err != nil {
			return types.WrapErr(err)
		}
		return o.Function(args...)
	})
}

// charactersPerCost is how many characters of a result cost one.
const charactersPerCost = 10

// costOfReplace is upstream's, and what the result costs to read: variables of a policy keep their values until its evaluation ends.
func costOfReplace(args []ref.Val, result ref.Val) *uint64 {
	cost := characters(2*sizeOf(args[0])) + sizeOf(result)/charactersPerCost
	return &cost
}

// costOfSplit is upstream's, and one for each element that it makes.
func costOfSplit(args []ref.Val, result ref.Val) *uint64 {
	cost := characters(2*sizeOf(args[0])) + uint64(Elements(result)) //nolint:gosec // It is not negative.
	return &cost
}

// costOfFormat is upstream's, and what the result costs to read.
func costOfFormat(_ []ref.Val, result ref.Val) *uint64 {
	cost := 1 + characters(sizeOf(result))
	return &cost
}

// Overloads of functions that make texts and lists.
const (
	replaceAll   = "string_replace_string_string"
	replaceSome  = "string_replace_string_string_int"
	splitAll     = "string_split_string"
	splitSome    = "string_split_string_int"
	formatString = "string_format"
)

// countResults are options that have functions cost what they make.
func countResults() cel.ProgramOption {
	return cel.CostTrackerOptions(
		interpreter.OverloadCostTracker(replaceAll, costOfReplace),
		interpreter.OverloadCostTracker(replaceSome, costOfReplace),
		interpreter.OverloadCostTracker(splitAll, costOfSplit),
		interpreter.OverloadCostTracker(splitSome, costOfSplit),
		interpreter.OverloadCostTracker(formatString, costOfFormat),
	)
}

// tooLarge returns an error if a call makes more than so many bytes.
func tooLarge(what string, n int64) error {
	if err := bounds.ExpressionBytes.Check(n); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// tooSlow returns an error if a call takes more than so many steps.
func tooSlow(what string, n int64) error {
	if err := bounds.MatchSteps.Check(n); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func checkReplace(args []ref.Val) error {
	text, _ := args[0].(types.String)
	old, _ := args[1].(types.String)
	by, _ := args[2].(types.String)
	times := int64(strings.Count(string(text), string(old)))
	if len(args) == 4 {
		if n, ok := args[3].(types.Int); ok && n >= 0 {
			times = min(times, int64(n))
		}
	}
	return tooLarge("result of replace", int64(len(text))+times*int64(len(by)-len(old)))
}

// checkJoin counts the texts of a list, and what is put between them.
func checkJoin(args []ref.Val) error {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return nil
	}
	var n int64
	for i := list.Iterator(); i.HasNext() == types.True; {
		if text, ok := i.Next().(types.String); ok {
			n += int64(len(text))
		}
	}
	if len(args) == 2 {
		if between, ok := args[1].(types.String); ok {
			n += size(list) * int64(len(between))
		}
	}
	return tooLarge("result of join", n)
}

// clauseBytes is how much a clause of a format may make, however short the value is: a large number has 309 digits.
const clauseBytes = 512

// checkFormat counts the format, the arguments, and the digits that are asked for, as in %.3f.
func checkFormat(args []ref.Val) error {
	format, _ := args[0].(types.String)
	n := int64(len(format)) + Elements(args[1])*charactersPerElement + int64(strings.Count(string(format), "%"))*clauseBytes
	for _, after := range strings.Split(string(format), "%.")[1:] {
		digits := int64(0)
		for i := 0; i < len(after) && '0' <= after[i] && after[i] <= '9' && digits < bounds.ExpressionBytes.Bound().Default; i++ {
			digits = 10*digits + int64(after[i]-'0')
		}
		n += digits
	}
	return tooLarge("result of format", n)
}

// valueBytes is what an element of a list takes in memory.
const valueBytes = 16

func checkRange(args []ref.Val) error {
	n, _ := args[0].(types.Int)
	return tooLarge("result of lists.range", min(int64(n), maxElements)*valueBytes)
}

// checkFlatten counts what lists in lists hold, however deep.
func checkFlatten(args []ref.Val) error {
	return tooLarge("result of flatten", Elements(args[0])*valueBytes)
}

// maxExponent is of a quantity. Larger ones are computed digit by digit: 1e100000000 takes minutes.
const maxExponent = 1000

func checkQuantity(args []ref.Val) error {
	text, _ := args[0].(types.String)
	_, exponent, ok := strings.Cut(strings.ToLower(string(text)), "e")
	if !ok || len(exponent) < 2 {
		return nil
	}
	n, err := strconv.ParseInt(exponent, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // it is no quantity, or one of exbibytes
		return nil
	}
	if n > maxExponent || n < -maxExponent {
		return fmt.Errorf("quantity with the exponent %s: use one from -%d to %d", exponent, maxExponent, maxExponent)
	}
	return nil
}

// checkIndexOf is for texts and lists.
func checkIndexOf(args []ref.Val) error {
	if list, ok := args[0].(traits.Lister); ok {
		return tooSlow("list to search", comparisonSteps*min(Elements(list), size(list)*Elements(args[1])))
	}
	text, isText := args[0].(types.String)
	part, isPart := args[1].(types.String)
	if !isText || !isPart {
		return nil
	}
	n, m := size(text), size(part)
	return tooSlow("text to search", max(0, n-m+1)*m)
}

// comparisonSteps is how many steps it takes to compare two elements.
const comparisonSteps = 4

func checkDistinct(args []ref.Val) error {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return nil
	}
	return tooSlow("list to make distinct", comparisonSteps*Elements(list)*size(list)/2)
}

func checkSets(args []ref.Val) error {
	a, isList := args[0].(traits.Lister)
	b, isSet := args[1].(traits.Lister)
	if !isList || !isSet || size(a) == 0 || size(b) == 0 {
		return nil
	}
	return tooSlow("sets to compare", comparisonSteps*min(Elements(a)*size(b), Elements(b)*size(a)))
}
