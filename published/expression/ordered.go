// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// ordered is a map over whose keys expressions loop in order. In the order of Go's maps, such an expression would have another value each
// time, and what it sets would be written again and again.
type ordered struct{ traits.Mapper }

// Iterator implements [traits.Iterable].
func (o ordered) Iterator() traits.Iterator {
	keys, _ := o.Value().(map[string]any)
	return types.NewStringList(adapter{}, slices.Sorted(maps.Keys(keys))).Iterator()
}

// adapter makes values of JSON those of expressions.
type adapter struct{}

// NativeToValue implements [types.Adapter].
func (a adapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case map[string]any:
		return ordered{types.NewStringInterfaceMap(a, v)}
	case []any:
		return types.NewDynamicList(a, v)
	default:
		return types.DefaultTypeAdapter.NativeToValue(value)
	}
}
