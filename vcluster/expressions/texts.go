// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/berth-dev/berth/vcluster/schemas"
)

// boundedText is a function that returns its first argument, a text that is not too long for the pattern that it is matched with
// next. The others are the length of the pattern's program, and how many matches are asked for. It stands before patterns that are
// literals, which upstream compiles once; calls with others check both. CEL counts what a match costs after it, and nothing
// interrupts it. Nobody can write the function's name.
const (
	boundedText         = "@bounded_text"
	boundedTextOverload = "bounded_text_string_int_int"
)

// findAll is the function that matches a text several times, each time up to its end: the pattern a*b|a finds each a of a text.
const findAll = "findAll"

const (
	// charactersPerMatch is how long a part of a text is taken for that one of several matches finds: fewer than the longest text has,
	// more than the worst pattern finds.
	charactersPerMatch = 10
	// allMatches asks for all of them.
	allMatches = -1
)

// times is how often a text of n characters is matched at most, if so many matches are asked for.
func times(n, matches int64) int64 {
	all := max(1, n/charactersPerMatch)
	if matches < 0 {
		return all
	}
	return min(all, max(1, matches))
}

// checkText returns a text, or an error if to match it takes too long. What is no text the call refuses that is made with it.
func checkText(args ...ref.Val) ref.Val {
	text, isText := args[0].(types.String)
	instructions, isNumber := args[1].(types.Int)
	matches, isMatches := args[2].(types.Int)
	if !isText || !isNumber || !isMatches {
		return args[0]
	}
	if err := checkSteps(text, int64(instructions), int64(matches)); err != nil {
		return types.WrapErr(refusal{err})
	}
	return text
}

func checkSteps(text types.String, instructions, matches int64) error {
	n := size(text)
	return tooSlow("text to match", n*instructions*times(n, matches))
}

// checkMatch is for calls with patterns that are no literals.
func checkMatch(args []ref.Val, matches int64) error {
	text, isText := args[0].(types.String)
	pattern, isPattern := args[1].(types.String)
	if !isText || !isPattern {
		return nil
	}
	if err := check(string(pattern)); err != nil {
		return fmt.Errorf("regular expression: %w", err)
	}
	return checkSteps(text, int64(schemas.Instructions(string(pattern))), matches)
}

func checkFind(args []ref.Val) error { return checkMatch(args, 1) }

func checkFindAll(args []ref.Val) error { return checkMatch(args, matchesOf(args)) }

// matchesOf is how many matches the arguments of findAll ask for.
func matchesOf(args []ref.Val) int64 {
	if len(args) == 3 {
		if n, ok := args[2].(types.Int); ok {
			return int64(n)
		}
	}
	return allMatches
}

// match is a call of matches whose pattern is no literal. It can't be declared once more, as find can.
type match struct{ interpreter.InterpretableCall }

func (m match) Eval(vars interpreter.Activation) ref.Val {
	return m.Exec(interpreter.AsFrame(vars))
}

// Exec is what upstream calls.
func (m match) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	var args []ref.Val
	for _, a := range m.Args() {
		v := a.Exec(frame)
		if types.IsUnknownOrError(v) {
			return v
		}
		args = append(args, v)
	}
	if err := checkMatch(args, 1); err != nil {
		return types.WrapErr(refusal{err})
	}
	text, ok := args[0].(traits.Matcher)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	return text.Match(args[1])
}

// boundMatches has calls of matches checked.
func boundMatches() cel.ProgramOption {
	return cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, ok := i.(interpreter.InterpretableCall)
		if !ok || call.Function() != overloads.Matches || len(call.Args()) != 2 {
			return i, nil
		}
		if _, literal := call.Args()[1].(interpreter.InterpretableConst); literal {
			return i, nil
		}
		return match{call}, nil
	})
}
