// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/quantities"
)

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

func checkQuantity(args []ref.Val) error {
	text, _ := args[0].(types.String)
	return quantities.Check(string(text))
}
