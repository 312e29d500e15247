// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"maps"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/berth-dev/berth/bounds"
)

// boundedCalls are the functions whose calls take more than upstream counts. CEL counts what a call costs after it, and nothing
// interrupts it: those that may take long, or make much, are checked before. A test finds functions that are not here and should be.
func boundedCalls() map[string]bound {
	table := map[string]bound{
		// These compare elements, which may be as large as the whole list.
		operators.In:            {check: slow("list to search", compared), cost: atLeast(costOfMembership, compared)},
		operators.Equals:        {check: slow("values to compare", equated)},
		operators.NotEquals:     {check: slow("values to compare", equated)},
		"indexOf":               {check: checkIndexOf, cost: atLeast(estimated("indexOf"), searched)},
		"lastIndexOf":           {check: checkIndexOf, cost: atLeast(estimated("lastIndexOf"), searched)},
		"distinct":              {check: slow("list to make distinct", paired), cost: atLeast(costOfPairs, paired)},
		"sets.contains":         {check: slow("sets to compare", multiplied), cost: atLeast(costOfSets(1), multiplied)},
		"sets.intersects":       {check: slow("sets to compare", multiplied), cost: atLeast(costOfSets(1), multiplied)},
		"sets.equivalent":       {check: slow("sets to compare", multiplied), cost: atLeast(costOfSets(2), multiplied)},
		"sort":                  {check: slow("list to sort", sorted), cost: atLeast(one, sorted), typed: atLeast(costOfPairs, sorted)},
		"@sortByAssociatedKeys": {check: slow("list to sort", sorted), cost: atLeast(one, sorted), typed: atLeast(costOfPairs, sorted)},
		"min":                   {check: slow("list to compare", first), cost: atLeast(estimated("min"), first)},
		"max":                   {check: slow("list to compare", first), cost: atLeast(estimated("max"), first)},
		"isSorted":              {check: slow("list to compare", first), cost: atLeast(estimated("isSorted"), first)},
		"sum":                   {check: slow("list to add", first), cost: atLeast(estimated("sum"), first)},

		// These make texts and lists.
		"replace":     {check: checkReplace, cost: costOfReplace},
		"format":      {check: checkFormat, cost: atLeast(costOfFormat, handled)},
		"flatten":     {check: checkFlatten, cost: atLeast(costOfFlatten, handled)},
		"split":       {cost: costOfSplit},
		"join":        {check: checkJoin, cost: atLeast(estimated("join"), handled)},
		"lists.range": {check: checkRange, cost: costOfRange},

		// These match, or compute digit by digit.
		"find":       {check: checkFind},
		findAll:      {check: checkFindAll},
		"quantity":   {check: checkQuantity, cost: estimated("quantity")},
		"isQuantity": {check: checkQuantity, cost: estimated("isQuantity")},

		// Upstream counts those by the overload.
		"string": {cost: costOfConversion},
		"bytes":  {cost: costOfConversion},
	}
	for _, order := range []string{operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals} {
		table[order] = bound{cost: costOfOrder}
	}
	maps.Copy(table, constant(text, "size", "charAt", "int", "uint", "double", "bool", "timestamp", "duration", "format.named"))
	maps.Copy(table, constant(length, "unwrapOpt", "optional.unwrap"))
	maps.Copy(table, constant(handled,
		"getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "getQuery", "compareTo", "isGreaterThan", "isLessThan"))
	return table
}

// work is how many elements a call handles.
type work func(args []ref.Val, result ref.Val) int64

// constant functions cost one for upstream, whatever they handle.
func constant(w work, functions ...string) map[string]bound {
	of := map[string]bound{}
	for _, f := range functions {
		of[f] = bound{cost: atLeast(one, w)}
	}
	return of
}

// atLeast is upstream's cost, or what the elements cost that are handled if that is more.
func atLeast(upstream interpreter.FunctionTracker, w work) interpreter.FunctionTracker {
	return func(args []ref.Val, result ref.Val) *uint64 {
		elements := w(args, result)
		if elements >= maxElements { // upstream would count all of them
			cost := costOfElements(maxElements)
			return &cost
		}
		cost := max(*upstream(args, result), costOfElements(elements))
		return &cost
	}
}

// slow refuses calls that handle too many elements.
func slow(what string, w work) func([]ref.Val) error {
	return func(args []ref.Val) error {
		elements := w(args, nil)
		steps := comparisonSteps * elements
		if elements == maxElements { // there are more, which were not counted
			steps = max(steps, bounds.MatchSteps.Bound().Default+1)
		}
		return tooSlow(what, steps)
	}
}
