// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"fmt"
	"strings"
)

// fields are those that an object may have, in their order, and what holds of each.
type fields []field

type field struct {
	name string
	list bool
	// below are the fields of the field's value, or of each of its items. Without
	// them anything may be there: a value, a list of values, or a map.
	below fields
	// rule is the name of one of [rules], which the value meets.
	rule string
	// holds is an expression about the value, or about each item of a list. It is for rules that have no name.
	holds func(value string) string
	// others is what may be said of further names f in the value; see [fields.only].
	others func(value string) string
}

// parse reads the fields that an object may have, for example
//
//	type clusterIPs ports[]{name port} selector:own
//
// A name followed by braces has fields of its own, with [] before them it is a list
// of such values. A name after a colon is that of one of [rules].
func parse(text string) fields {
	p := parser{rest: text}
	out := p.fields()
	if p.rest != "" {
		panic(fmt.Sprintf("fields %q end before %q", text, p.rest))
	}
	return out
}

type parser struct{ rest string }

func (p *parser) fields() (out fields) {
	for {
		p.rest = strings.TrimLeft(p.rest, " \n\t")
		if p.rest == "" || p.rest[0] == '}' {
			return out
		}
		f := field{name: p.word()}
		if f.name == "" {
			panic(fmt.Sprintf("no field begins with %q", p.rest))
		}
		f.list = p.take("[]")
		if p.take("{") {
			f.below = p.fields()
			if !p.take("}") {
				panic("a brace is not closed")
			}
		} else if p.take(":") {
			f.rule = p.word()
		}
		out = append(out, f)
	}
}

func (p *parser) take(token string) (ok bool) {
	p.rest, ok = strings.CutPrefix(p.rest, token)
	return ok
}

func (p *parser) word() (word string) {
	end := strings.IndexFunc(p.rest, func(r rune) bool { return !strings.ContainsRune(letters, r) })
	if end < 0 {
		end = len(p.rest)
	}
	word, p.rest = p.rest[:end], p.rest[end:]
	return word
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"

// only is an expression which says that a value has these fields only. It asks for
// the names of all fields that are there, so that a field that a newer host knows is
// refused, too. others is what may be said of further names f, or empty.
func (all fields) only(value, others string) string { return all.at(value, others, 0) }

func (all fields) at(value, others string, depth int) string {
	return strings.Join(append([]string{all.names(value, others, depth)}, all.terms(value, depth)...), " && ")
}

// names is an expression about the names of the fields that are there.
func (all fields) names(value, others string, depth int) string {
	var names []string
	for _, f := range all {
		names = append(names, f.name)
	}
	name := fmt.Sprintf("f%d", depth)
	known := fmt.Sprintf("%s in %s", name, quoted(names...))
	if others != "" {
		name, known = "f", "f in "+quoted(names...)+" || "+others
	}
	return fmt.Sprintf("%s.all(%s, %s)", value, name, known)
}

// terms are expressions about the values of the fields.
func (all fields) terms(value string, depth int) (terms []string) {
	for _, f := range all {
		at, item := value+"."+f.name, fmt.Sprintf("x%d", depth)
		term := ""
		switch {
		case f.holds != nil && f.list:
			term = fmt.Sprintf("type(%s) == list && %s.all(%s, %s)", at, at, item, f.holds(item))
		case f.holds != nil:
			term = f.holds(at)
		case f.rule != "":
			term = rule(f.rule, at)
		case f.below == nil:
			continue
		case f.list:
			// Some lists are written as null where they are empty.
			term = fmt.Sprintf("%s == null || %s.all(%s, %s%s)", at, at, item, plain(f.name, item), f.below.at(item, f.further(item), depth+1))
		default:
			term = f.below.at(at, f.further(at), depth+1)
		}
		terms = append(terms, fmt.Sprintf("(!has(%s) || %s)", at, term))
	}
	return terms
}

// further is what may be said of further names in a value of the field.
func (f *field) further(value string) string {
	if f.others == nil {
		return ""
	}
	return f.others(value)
}

// plain is an expression that is true of most items of a long list, and quicker to
// evaluate than what follows it: pods have many variables with a name and a value.
func plain(name, item string) string {
	if name != "env" {
		return ""
	}
	return fmt.Sprintf("has(%[1]s.value) && size(%[1]s) == 2 || ", item)
}

// keptIn is an expression that allows a field f of a value, such as
// object.spec, as it was before: it is somebody else's.
func keptIn(value string) string {
	old := strings.Replace(value, "object", "oldObject", 1)
	return fmt.Sprintf("oldObject != null && f in dyn(%s) && dyn(%s)[f] == dyn(%s)[f]", old, old, value)
}
