// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Switches say what is synced. The zero value has every kind at its default.
type Switches struct{ set map[string]string }

// Parse reads switches of the form KIND=VALUE. The last of a kind counts.
func Parse(args []string) (Switches, error) {
	s := Switches{set: map[string]string{}}
	for _, arg := range args {
		name, value, found := strings.Cut(arg, "=")
		kind, known := find(name)
		switch {
		case !known:
			return Switches{}, fmt.Errorf("%q is not a kind that is synced; there are %s", name, strings.Join(names(), ", "))
		case !found || !kind.takes(value):
			return Switches{}, fmt.Errorf("%s=%s: want %s", name, value, kind.possible())
		}
		s.set[name] = value
	}
	return s, nil
}

// Args is s in the form that Parse reads, less what is the default.
func (s Switches) Args() []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(s.set)) {
		args = append(args, name+"="+s.set[name])
	}
	return args
}

// Value of a kind's switch.
func (s Switches) Value(name string) string {
	if value, ok := s.set[name]; ok {
		return value
	}
	kind, _ := find(name)
	return kind.Default()
}

// On reports whether a kind is synced at all.
func (s Switches) On(name string) bool { return s.Value(name) != Off }

// Selects returns which of the host's objects of a kind spaces see.
func (s Switches) Selects(name string) labels.Selector {
	switch value := s.Value(name); value {
	case On:
		return labels.Everything()
	case Off:
		return labels.Nothing()
	default:
		selector, err := labels.Parse(value)
		if err != nil { // Parse has seen to it
			return labels.Nothing()
		}
		return selector
	}
}

// takes reports whether value is one of the kind's. A word alone is a label
// selector, too, but more likely a mistake.
func (k Kind) takes(value string) bool {
	if slices.Contains(k.Values, value) && value != Selector {
		return true
	}
	_, err := labels.Parse(value)
	return slices.Contains(k.Values, Selector) && err == nil && strings.Contains(value, "=")
}

func (k Kind) possible() string {
	words := slices.Clone(k.Values)
	if i := slices.Index(words, Selector); i >= 0 {
		words[i] = "a label selector such as " + Shown
		words = slices.DeleteFunc(words, func(w string) bool { return w == Shown })
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func names() []string {
	var out []string
	for _, k := range Table() {
		out = append(out, k.Name)
	}
	return out
}

// Complete lists the switches that begin with what has been typed, for a shell.
func Complete(typed string) []string {
	var out []string
	name, _, valued := strings.Cut(typed, "=")
	for _, k := range Table() {
		if !valued && strings.HasPrefix(k.Name, typed) {
			out = append(out, k.Name+"=")
		}
		for _, value := range k.Values {
			if (valued && k.Name == name || k.Name == typed) && value != Selector && strings.HasPrefix(k.Name+"="+value, typed) {
				out = append(out, k.Name+"="+value)
			}
		}
	}
	return out
}

// Markdown is the table as docs/syncing.md has it.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| kind | direction | default | switch | what comes back, or is shown | rewritten, and left out |\n|---|---|---|---|---|---|\n")
	for _, k := range Table() {
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s | %s |\n",
			k.Name, k.Direction, k.Default(), "`"+strings.Join(k.Values, "`, `")+"`", k.Status, k.Rewritten)
	}
	return b.String()
}
