// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"encoding/base64"
	"fmt"
	"math"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

const (
	// MaxValueBytes is about how many bytes the values of all fields of one copy may have together.
	MaxValueBytes = 64 << 10
	// maxDepth is how many lists and maps may be in each other.
	maxDepth = 64
	// scalarBytes is what a value costs besides its text.
	scalarBytes = 8
)

// convert returns a value as JSON has it. Numbers are those of unstructured objects: int64 and float64.
func convert(value ref.Val, budget *int, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("the value has more than %d lists and maps in each other", maxDepth)
	}
	if err := spend(budget, scalarBytes); err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		if v > math.MaxInt64 {
			return nil, fmt.Errorf("the value %d is above %d", uint64(v), int64(math.MaxInt64))
		}
		return int64(v), nil
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, fmt.Errorf("the value %v is no number in JSON", float64(v))
		}
		return float64(v), nil
	case types.String:
		return string(v), spend(budget, len(v))
	case types.Bytes: // as in the data of Secrets
		return base64.StdEncoding.EncodeToString(v), spend(budget, len(v)*4/3)
	case traits.Mapper:
		return convertMap(v, budget, depth)
	case traits.Lister:
		list := []any{}
		for i := v.Iterator(); i.HasNext() == types.True; {
			element, err := convert(i.Next(), budget, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, element)
		}
		return list, nil
	default:
		return nil, fmt.Errorf("the expression returns a value of type %s, which has no form in JSON; convert it, for example by string()", value.Type().TypeName())
	}
}

func convertMap(m traits.Mapper, budget *int, depth int) (any, error) {
	object := map[string]any{}
	for i := m.Iterator(); i.HasNext() == types.True; {
		key := i.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf("the value has a key of type %s; keys must be strings", key.Type().TypeName())
		}
		if err := spend(budget, len(name)); err != nil {
			return nil, err
		}
		element, err := convert(m.Get(key), budget, depth+1)
		if err != nil {
			return nil, err
		}
		object[string(name)] = element
	}
	return object, nil
}

func spend(budget *int, n int) error {
	if *budget -= n; *budget < 0 {
		return fmt.Errorf("the values of all fields together exceed %d KiB; return less, or set fewer fields", MaxValueBytes>>10)
	}
	return nil
}
