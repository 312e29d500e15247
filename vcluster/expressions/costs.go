// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"math/bits"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"
)

// What upstream has calls cost whose costs are counted here.

func one([]ref.Val, ref.Val) *uint64 { return new(uint64(1)) }

// estimated is the cost of a function of Kubernetes' own libraries.
func estimated(function string) interpreter.FunctionTracker {
	return func(args []ref.Val, result ref.Val) *uint64 {
		if cost := (&library.CostEstimator{}).CallCost(function, "", args, result); cost != nil {
			return cost
		}
		return one(args, result)
	}
}

func costOfMembership(args []ref.Val, _ ref.Val) *uint64 {
	if list, ok := args[1].(traits.Lister); ok {
		return new(sizeOf(list))
	}
	return new(uint64(1))
}

// costOfPairs is that of comparing each element of a list with each.
func costOfPairs(args []ref.Val, _ ref.Val) *uint64 {
	keys, ok := args[len(args)-1].(traits.Lister)
	if !ok {
		return new(uint64(1))
	}
	n, factor := sizeOf(keys), 2.0
	if n > 0 {
		switch keys.Get(types.IntZero).(type) {
		case types.String, types.Bytes:
			factor += common.StringTraversalCostFactor
		}
	}
	return allocated(factor, n*n)
}

func costOfSets(factor uint64) interpreter.FunctionTracker {
	return func(args []ref.Val, _ ref.Val) *uint64 { return new(1 + sizeOf(args[0])*sizeOf(args[1])*factor) }
}

func costOfFlatten(args []ref.Val, _ ref.Val) *uint64 {
	depth := 1.0
	if len(args) == 2 {
		if n, ok := args[1].(types.Int); ok {
			depth = max(0, float64(n))
		}
	}
	return allocated(depth, sizeOf(args[0]))
}

func costOfRange(_ []ref.Val, result ref.Val) *uint64 { return allocated(1, sizeOf(result)) }

// allocated is the cost of a list that is made.
func allocated(factor float64, size uint64) *uint64 {
	return new(uint64(float64(size)*factor) + 1 + common.ListCreateBaseCost)
}

// costOfConversion is for conversions between texts and bytes.
func costOfConversion(args []ref.Val, result ref.Val) *uint64 {
	_, from := args[0].(types.String)
	if _, to := result.(types.String); from != to {
		switch args[0].(type) {
		case types.String, types.Bytes:
			return new(characters(sizeOf(args[0])))
		}
	}
	return new(uint64(1))
}

func costOfOrder(args []ref.Val, _ ref.Val) *uint64 {
	return new(characters(smallerSize(args[0], args[1])))
}

// The work of calls.

// text is that of reading a text, which an error may repeat.
func text(args []ref.Val, _ ref.Val) int64 {
	switch args[0].(type) {
	case types.String, types.Bytes:
		return Elements(args[0])
	}
	return 1
}

func length(args []ref.Val, _ ref.Val) int64 {
	if list, ok := args[0].(traits.Lister); ok {
		return size(list)
	}
	return 1
}

func first(args []ref.Val, _ ref.Val) int64 { return Elements(args[0]) }

// handled is all that a call is given and makes.
func handled(args []ref.Val, result ref.Val) int64 {
	var n int64
	for _, v := range args {
		n += Elements(v)
	}
	if result != nil {
		n += Elements(result)
	}
	return n
}

func equated(args []ref.Val, _ ref.Val) int64 { return fewerElements(args[0], args[1]) }

// compared is the work of comparing the first argument with each element of the second.
func compared(args []ref.Val, _ ref.Val) int64 {
	list, ok := args[1].(traits.Lister)
	if !ok {
		return text(args, nil)
	}
	if Elements(args[0]) == 1 {
		return size(list)
	}
	var n int64
	for i := list.Iterator(); n < maxElements && i.HasNext() == types.True; {
		n += fewerElements(args[0], i.Next())
	}
	return min(n, maxElements)
}

// searched is the work of looking for the second argument in the first, a list or a text.
func searched(args []ref.Val, _ ref.Val) int64 {
	if _, ok := args[0].(traits.Lister); ok {
		return compared([]ref.Val{args[1], args[0]}, nil)
	}
	return min(searchSteps(args)/(charactersPerElement*elementsPerCost), maxElements)
}

// searchSteps is how many characters are compared to find a text in another one.
func searchSteps(args []ref.Val) int64 {
	in, isText := args[0].(types.String)
	part, isPart := args[1].(types.String)
	if !isText || !isPart {
		return 0
	}
	n, m := size(in), size(part)
	return max(0, n-m+1) * m
}

// paired is the work of comparing each element of a list with those before it.
func paired(args []ref.Val, _ ref.Val) int64 {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return 1
	}
	return Elements(list) * size(list) / 2
}

// multiplied is the work of comparing each element of a list with each of another one.
func multiplied(args []ref.Val, _ ref.Val) int64 {
	a, isList := args[0].(traits.Lister)
	b, isSet := args[1].(traits.Lister)
	if !isList || !isSet || size(a) == 0 || size(b) == 0 {
		return 0
	}
	return min(Elements(a)*size(b), Elements(b)*size(a))
}

// sorted is the work of sorting a list, by itself or by a list of keys.
func sorted(args []ref.Val, _ ref.Val) int64 {
	keys, ok := args[len(args)-1].(traits.Lister)
	if !ok {
		return 1
	}
	return Elements(keys) * int64(bits.Len64(sizeOf(keys)))
}

// comparisonSteps is how many steps it takes to compare two elements.
const comparisonSteps = 4

// checkIndexOf is for texts and lists.
func checkIndexOf(args []ref.Val) error {
	if _, ok := args[0].(traits.Lister); ok {
		return slow("list to search", searched)(args)
	}
	return tooSlow("text to search", searchSteps(args))
}
