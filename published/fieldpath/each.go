// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package fieldpath

import (
	"iter"
	"slices"
)

// Each returns the paths of the fields of an object that p stands for: p itself, or if it has [*], one for each element of these lists
// that the object has.
func (p Path) Each(object map[string]any) iter.Seq[Path] {
	return func(yield func(Path) bool) { p.each(object, yield) }
}

func (p Path) each(object map[string]any, yield func(Path) bool) bool {
	at := slices.IndexFunc(p.steps, func(s step) bool { return s.each })
	if at < 0 {
		return yield(p)
	}
	list, _ := Path{steps: p.steps[:at]}.Get(object).([]any)
	for i := range list {
		one := Path{text: p.text, steps: slices.Clone(p.steps)}
		one.steps[at] = step{index: i, inList: true}
		if !one.each(object, yield) {
			return false
		}
	}
	return true
}

// Get returns the value of the field; nil if the object does not have it, or if the path has [*]. It must not be changed.
func (p Path) Get(object map[string]any) any {
	var node any = object
	for _, next := range p.steps {
		switch have := node.(type) {
		case map[string]any:
			node = have[next.key] // a key is never empty
		case []any:
			if !next.inList || next.each || next.index >= len(have) {
				return nil
			}
			node = have[next.index]
		default:
			return nil
		}
	}
	return node
}

// InElements reports whether an object has all elements of lists that the path leads through or to.
func (p Path) InElements(object map[string]any) bool {
	var node any = object
	for _, next := range p.steps {
		list, _ := node.([]any)
		switch have, _ := node.(map[string]any); {
		case !next.inList:
			node = have[next.key] // nil goes on: a list may follow that the object has not
		case next.index >= len(list):
			return false
		default:
			node = list[next.index]
		}
	}
	return true
}
