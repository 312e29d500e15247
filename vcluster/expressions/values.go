// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"math"
	"reflect"
	"unsafe"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
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
	maxElements = 8_000_000
)

// Elements is about how many elements a value has, with those of values that it holds, each as often as it is held. Those beyond
// a large number are not counted.
func Elements(v ref.Val) int64 {
	e := elements{left: maxElements}
	e.add(v)
	return maxElements - e.left
}

// fewerElements is the smaller number of elements of two values. It looks at little more than so many of each.
func fewerElements(a, b ref.Val) int64 {
	for limit := int64(smallValue); ; limit *= 8 {
		limit = min(limit, maxElements)
		of := [2]elements{{left: limit}, {left: limit}}
		of[0].add(a)
		of[1].add(b)
		if left := max(of[0].left, of[1].left); left > 0 || limit == maxElements {
			return limit - left
		}
	}
}

// Bytes is about how long a value is as JSON.
func Bytes(v ref.Val) int64 { return Elements(v) * charactersPerElement }

type elements struct{ left int64 }

func (e *elements) add(v ref.Val) {
	if e.left--; e.left <= 0 {
		e.left = 0
		return
	}
	switch v := v.(type) {
	case types.String:
		e.take(len(v))
	case types.Bytes:
		e.take(len(v))
	case *types.Optional:
		if v.HasValue() {
			e.add(v.GetValue())
		}
	case *mutation.JSONPatchVal:
		e.take(len(v.Op) + len(v.Path) + len(v.From))
		if v.Val != nil {
			e.add(v.Val)
		}
	case *dynamic.ObjectVal:
		for _, field := range fieldsOf(v) {
			e.add(field)
		}
	case traits.Mapper:
		for i := v.Iterator(); e.left > 0 && i.HasNext() == types.True; {
			key := i.Next()
			e.add(key)
			e.add(v.Get(key))
		}
	case traits.Lister:
		for i := v.Iterator(); e.left > 0 && i.HasNext() == types.True; {
			e.add(i.Next())
		}
	}
}

func (e *elements) take(characters int) {
	e.left = max(0, e.left-int64(characters/charactersPerElement))
}

// fieldsOf returns the fields of an object of an apply configuration. Upstream shows them only as Go values, which are as large as
// what they hold.
func fieldsOf(o *dynamic.ObjectVal) map[string]ref.Val {
	fields := reflect.ValueOf(o).Elem().FieldByName("fields")
	if !fields.IsValid() {
		return nil
	}
	values, _ := reflect.NewAt(fields.Type(), unsafe.Pointer(fields.UnsafeAddr())).Elem().Interface().(map[string]ref.Val) //nolint:gosec // Reflection does not read a private field otherwise; nothing writes to it any more.
	return values
}

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
		cel.CustomDecorator(func(i interpreter.Interpretable) (interpreter.Interpretable, error) {
			switch node := i.(type) {
			case interpreter.InterpretableConstructor:
				if !constant(node) {
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
			interpreter.OverloadCostTracker(overloads.Equals, costOfComparison),
			interpreter.OverloadCostTracker(overloads.NotEquals, costOfComparison),
			interpreter.OverloadCostTracker(mapInsertKeyValue, costOfInsertion),
			interpreter.OverloadCostTracker(mapInsertMap, costOfInsertion),
		),
	}
}

// constant reports whether all that is constructed is known before: upstream constructs it once.
func constant(c interpreter.InterpretableConstructor) bool {
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

func (c construction) Function() string                  { return countedConstruction }
func (c construction) OverloadID() string                { return countedConstruction }
func (c construction) Args() []interpreter.Interpretable { return c.InitVals() }

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
	sum := a.InterpretableCall.Eval(vars)
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
	if !holds(args[0]) || !holds(args[1]) {
		return nil
	}
	cost := characters(min(sizeOf(args[0]), sizeOf(args[1]))) + costOfElements(fewerElements(args[0], args[1]))
	return &cost
}

func holds(v ref.Val) bool {
	switch v.(type) {
	case traits.Mapper, traits.Lister, *dynamic.ObjectVal, *mutation.JSONPatchVal, *types.Optional:
		return true
	}
	return false
}

// costOfInsertion is upstream's, and what the last argument holds.
func costOfInsertion(args []ref.Val, _ ref.Val) *uint64 {
	cost := 1 + costOfElements(Elements(args[len(args)-1]))
	return &cost
}
