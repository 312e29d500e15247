// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package fieldpath

import (
	"fmt"
)

// Set sets the field in an object, which must not be nil, to a value, which is used and not copied. It makes the maps and
// lists on the way that are missing. An index may be that of an element, or the length of the list, which appends one. A nil
// value removes the field, which must not be an element of a list.
//
// If Set returns an error, the object may have been changed on the way.
func (p Path) Set(object map[string]any, value any) error {
	if value == nil {
		return p.remove(object)
	}
	_, err := p.set(object, 0, value)
	return err
}

// set returns what replaces node after the field below it was set.
func (p Path) set(node any, depth int, value any) (any, error) {
	if depth == len(p.steps) {
		return value, nil
	}
	next := p.steps[depth]
	if next.inList {
		list, ok := node.([]any)
		if !ok && node != nil {
			return nil, p.mismatch(depth, "a list", node)
		}
		if next.index > len(list) {
			return nil, fmt.Errorf("set %s: the list at %s has %d elements, so the index may be at most %d", p.text, p.upTo(depth), len(list), len(list))
		}
		if next.index == len(list) {
			list = append(list, nil)
		}
		element, err := p.set(list[next.index], depth+1, value)
		list[next.index] = element
		return list, err
	}
	fields, ok := node.(map[string]any)
	if !ok && node != nil {
		return nil, p.mismatch(depth, "an object", node)
	}
	if fields == nil {
		fields = map[string]any{}
	}
	child, err := p.set(fields[next.key], depth+1, value)
	fields[next.key] = child
	return fields, err
}

// remove removes the field, if it exists.
func (p Path) remove(object map[string]any) error {
	var node any = object
	for depth, next := range p.steps {
		last := depth == len(p.steps)-1
		switch have := node.(type) {
		case nil:
			return nil
		case map[string]any:
			if next.inList {
				return p.mismatch(depth, "a list", node)
			}
			if last {
				delete(have, next.key)
				return nil
			}
			node = have[next.key]
		case []any:
			switch {
			case !next.inList:
				return p.mismatch(depth, "an object", node)
			case last:
				return fmt.Errorf("set %s: an element of a list can't be null; set the list", p.text)
			case next.index >= len(have):
				return nil
			}
			node = have[next.index]
		default:
			return p.mismatch(depth, "an object or a list", node)
		}
	}
	return nil
}

func (p Path) mismatch(depth int, want string, have any) error {
	name := "a value"
	switch have.(type) {
	case string:
		name = "a string"
	case bool:
		name = "a boolean"
	case int64, float64:
		name = "a number"
	case []any:
		name = "a list"
	case map[string]any:
		name = "an object"
	}
	return fmt.Errorf("set %s: %s is %s and not %s; correct the path", p.text, p.upTo(depth), name, want)
}

// upTo describes the path of what a step is taken from.
func (p Path) upTo(depth int) string {
	if depth == 0 {
		return "the object"
	}
	text := ""
	for _, s := range p.steps[:depth] {
		switch {
		case s.each:
			text += "[*]"
		case s.inList:
			text += fmt.Sprintf("[%d]", s.index)
		default:
			text += fmt.Sprintf("[%q]", s.key)
		}
	}
	return text
}
