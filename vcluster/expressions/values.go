// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"math"
	"reflect"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

// A value may hold another one several times. Such values are small in memory while CEL computes them, and exponentially large to
// what reads them: a comparison, which nothing interrupts, or what writes them as JSON. For upstream, lists and maps cost the
// same whatever they hold, and so does the sum of two values whose types are not known. Here they cost what they hold.

const (
	// charactersPerElement is how many characters of a text take as long as an element of a list, to compare and to write.
	charactersPerElement = 16
	// elementsPerCost is how many elements cost one.
	elementsPerCost = 4
	// smallValue is how many elements cost nothing more.
	smallValue = 32
	// elementsCopied is how many elements cost one if they are copied to another list.
	elementsCopied = 10
	// maxElements is more than what an expression may cost.
	maxElements = 4_200_000
)

// Overloads of what the planner makes of an expression.
const (
	countedConstruction = "counted_construction"
	countedAddition     = "counted_addition"
	mapInsertKeyValue   = "@mapInsert_map_key_value"
	mapInsertMap        = "@mapInsert_map_map"
)

// countValues are options that have constructions of lists, maps and objects, and additions, cost what they hold.
func countValues() []cel.ProgramOption {
	one := types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{types.True})
	concatenated := reflect.TypeOf(one.Add(one))
	return []cel.ProgramOption{
		cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
			switch node := i.(type) {
			case interpreter.InterpretableConstructor:
				if !isConstant(node) {
					return construction{node}, nil
				}
			case interpreter.InterpretableCall:
				if node.Function() == operators.Add && len(node.Args()) == 2 {
					return addition{node, concatenated}, nil
				}
			}
			return i, nil
		}),
		cel.CostTrackerOptions(
			interpreter.OverloadCostTracker(countedConstruction, costOfConstruction),
			interpreter.OverloadCostTracker(countedAddition, costOfAddition),
			interpreter.OverloadCostTracker(overloads.Equals, unlessRefused(costOfComparison)),
			interpreter.OverloadCostTracker(overloads.NotEquals, unlessRefused(costOfComparison)),
			interpreter.OverloadCostTracker(mapInsertKeyValue, costOfInsertion),
			interpreter.OverloadCostTracker(mapInsertMap, costOfInsertion),
		),
	}
}

// isConstant reports whether all that is constructed is known before: upstream constructs it once.
func isConstant(c interpreter.InterpretableConstructor) bool {
	for _, value := range c.InitVals() {
		if _, ok := value.(interpreter.InterpretableConst); !ok {
			return false
		}
	}
	return true
}

// construction is one whose cost is counted as that of a call.
type construction struct {
	interpreter.InterpretableConstructor
}

func (c construction) Function() string                    { return countedConstruction }
func (c construction) OverloadID() string                  { return countedConstruction }
func (c construction) Args() []interpreter.InterpretableV2 { return c.InitVals() }

func costOfConstruction(_ []ref.Val, result ref.Val) *uint64 {
	cost := uint64(common.StructCreateBaseCost)
	switch result.(type) {
	case traits.Mapper:
		cost = common.MapCreateBaseCost
	case traits.Lister:
		cost = common.ListCreateBaseCost
	}
	cost += costOfElements(Elements(result))
	return &cost
}

// costOfElements is nothing for small values, which cost enough upstream.
func costOfElements(n int64) uint64 {
	if n < smallValue {
		return 0
	}
	return uint64(n / elementsPerCost)
}

// addition is one whose cost is counted by the types that its operands have, and not by those that are known before. Upstream
// concatenates lists as a tree, and reads most of that for each element of it.
type addition struct {
	interpreter.InterpretableCall
	concatenated reflect.Type
}

func (a addition) OverloadID() string { return countedAddition }

func (a addition) Eval(vars interpreter.Activation) ref.Val {
	return a.Exec(interpreter.AsFrame(vars))
}

// Exec is what upstream calls.
func (a addition) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	sum := a.InterpretableCall.Exec(frame)
	if reflect.TypeOf(sum) != a.concatenated {
		return sum
	}
	list, ok := sum.(traits.Lister)
	if !ok {
		return sum
	}
	flat := make([]ref.Val, 0, size(list))
	for i := list.Iterator(); i.HasNext() == types.True; {
		flat = append(flat, i.Next())
	}
	return types.NewRefValList(types.DefaultTypeAdapter, flat)
}

// costOfAddition is upstream's for operands of known types, and for lists as if they were texts, with what they hold. A macro such
// as map adds to the end of a list, which is not copied.
func costOfAddition(args []ref.Val, _ ref.Val) *uint64 {
	cost := uint64(1)
	switch args[0].(type) {
	case types.String, types.Bytes:
		cost = characters(sizeOf(args[0]) + sizeOf(args[1]))
	case traits.MutableLister:
	case traits.Lister:
		cost += (sizeOf(args[0])+sizeOf(args[1]))/elementsCopied + costOfElements(Elements(args[0])+Elements(args[1]))
	}
	return &cost
}

// characters is what it costs upstream to read a text.
func characters(n uint64) uint64 {
	return uint64(math.Ceil(float64(n) * common.StringTraversalCostFactor))
}

func sizeOf(v ref.Val) uint64 {
	if s, ok := v.(traits.Sizer); ok {
		if n, ok := s.Size().(types.Int); ok {
			return uint64(n) //nolint:gosec // It is not negative.
		}
	}
	return 1
}

// costOfComparison is upstream's for what holds nothing.
func costOfComparison(args []ref.Val, _ ref.Val) *uint64 {
	if _, isText := args[0].(types.String); !isText && (!holds(args[0]) || !holds(args[1])) {
		return nil
	}
	cost := characters(smallerSize(args[0], args[1]))
	if holds(args[0]) {
		cost += costOfElements(fewerElements(args[0], args[1]))
	}
	return &cost
}

// smallerSize is that of two values. If two texts differ much in length, it doesn't count the characters of the longer one.
func smallerSize(a, b ref.Val) uint64 {
	text, isText := a.(types.String)
	other, isOther := b.(types.String)
	if isText && isOther {
		if len(text) > len(other) {
			text, other = other, text
		}
		if len(other) > utf8.UTFMax*len(text) {
			return sizeOf(text)
		}
	}
	return min(sizeOf(a), sizeOf(b))
}

func holds(v ref.Val) bool {
	switch v.(type) {
	case traits.Mapper, traits.Lister, *dynamic.ObjectVal, *mutation.JSONPatchVal, *types.Optional, apiservercel.URL, apiservercel.Semver:
		return true
	}
	return false
}

// costOfInsertion is upstream's, and what the last argument holds.
func costOfInsertion(args []ref.Val, _ ref.Val) *uint64 {
	cost := 1 + costOfElements(Elements(args[len(args)-1]))
	return &cost
}
