// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"reflect"
	"unsafe"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

// Elements is about how many elements a value has, with those of values that it holds, each as often as it is held. Those beyond
// a large number are not counted.
func Elements(v ref.Val) int64 {
	e := elements{left: maxElements, plain: plainTypes()}
	e.add(v)
	return maxElements - e.left
}

// fewerElements is the smaller number of elements of two values. It looks at little more than so many of each.
func fewerElements(a, b ref.Val) int64 {
	plain := plainTypes()
	for limit := int64(smallValue); ; limit *= 8 {
		limit = min(limit, maxElements)
		of := [2]elements{{left: limit, plain: plain}, {left: limit, plain: plain}}
		of[0].add(a)
		of[1].add(b)
		if left := max(of[0].left, of[1].left); left > 0 || limit == maxElements {
			return limit - left
		}
	}
}

// Bytes is about how long a value is as JSON, with the characters of texts that are escaped.
func Bytes(v ref.Val) int64 {
	e := elements{left: maxElements, plain: plainTypes(), escaped: true}
	e.add(v)
	return (maxElements - e.left) * charactersPerElement
}

// Memory is about what a value takes in memory, in bytes. A part that it holds several times counts as often.
func Memory(v ref.Val) int64 { return Elements(v) * valueBytes }

// escapedLength is how many bytes a text has in JSON, or a few more.
func escapedLength(text string) (n int) {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c == '<', c == '>', c == '&':
			n += len(`\u003c`)
		case c == '"', c == '\\':
			n += 2
		case c == 0xe2: // may begin a line separator
			n += 4
		default:
			n++
		}
	}
	return n
}

type elements struct {
	left    int64
	plain   [2]reflect.Type
	escaped bool // whether texts count as JSON
}

// plainTypes are those of lists and maps that are made of a Go value. What they hold is counted in that, which is many times as fast.
func plainTypes() [2]reflect.Type {
	return [2]reflect.Type{
		reflect.TypeOf(types.NewDynamicList(types.DefaultTypeAdapter, []any(nil))),
		reflect.TypeOf(types.NewStringInterfaceMap(types.DefaultTypeAdapter, nil)),
	}
}

// addNative counts a Go value, of which a value is made.
func (e *elements) addNative(v any) bool {
	switch v := v.(type) {
	case ref.Val:
		e.add(v)
	case []ref.Val:
		for i := 0; i < len(v) && e.left > 0; i++ {
			e.add(v[i])
		}
	case []any:
		for i := 0; i < len(v) && e.left > 0; i++ {
			e.addOne(v[i])
		}
	case []string:
		for i := 0; i < len(v) && e.left > 0; i++ {
			e.left--
			e.text(v[i])
		}
	case map[string]any:
		for key, held := range v {
			if e.left <= 0 {
				break
			}
			e.left--
			e.text(key)
			e.addOne(held)
		}
	default:
		return false
	}
	return true
}

// addOne counts an element of a Go value.
func (e *elements) addOne(v any) {
	switch v := v.(type) {
	case nil, bool, int, int32, int64, uint64, float64:
		e.left--
	case string:
		e.left--
		e.text(v)
	case []any, map[string]any, []string:
		e.left--
		e.addNative(v)
	case ref.Val:
		e.add(v)
	default:
		e.add(types.DefaultTypeAdapter.NativeToValue(v))
	}
}

func (e *elements) add(v ref.Val) {
	if e.left--; e.left <= 0 {
		e.left = 0
		return
	}
	if t := reflect.TypeOf(v); (t == e.plain[0] || t == e.plain[1]) && e.addNative(v.Value()) {
		return
	}
	switch v := v.(type) {
	case types.String:
		e.text(string(v))
	case types.Bytes:
		e.take(len(v))
	case *types.Optional:
		if v.HasValue() {
			e.add(v.GetValue())
		}
	case apiservercel.URL:
		if v.URL != nil {
			e.take(len(v.Host) + len(v.Opaque) + len(v.Path) + len(v.RawQuery) + len(v.Fragment))
		}
	case apiservercel.Semver:
		for _, part := range v.Pre {
			e.left--
			e.take(len(part.VersionStr))
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

func (e *elements) text(text string) {
	n := len(text)
	if e.escaped {
		n = escapedLength(text)
	}
	e.take(n)
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
