// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
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
		case name == Pods && value == Off:
			return Switches{}, fmt.Errorf("%s=%s: this would terminate all pods of all spaces; if you want that, set %[1]s=%[3]s", name, value, OffAndDeletePods)
		case !found || !kind.takes(value):
			return Switches{}, fmt.Errorf("%s=%s: want %s", name, value, kind.possible())
		}
		if value == OffAndDeletePods {
			value = Off
		}
		s.set[name] = value
	}
	if s.On(DaemonSets) && s.Value(Nodes) != All {
		return Switches{}, fmt.Errorf("%s=%s: a DaemonSet runs a pod on each node that its space sees; show them, with %s=%s, too",
			DaemonSets, s.Value(DaemonSets), Nodes, All)
	}
	if s.On(HTTPRoutes) && !s.On(Gateways) {
		return Switches{}, fmt.Errorf("%s=%s: a route attaches to gateways; sync them, with %s=%s, too", HTTPRoutes, s.Value(HTTPRoutes), Gateways, On)
	}
	return s, nil
}

// Args is s in the form that Parse reads, less what is the default.
func (s Switches) Args() []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(s.set)) {
		value := s.set[name]
		if name == Pods && value == Off {
			value = OffAndDeletePods
		}
		args = append(args, name+"="+value)
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

// PriorityBound returns the highest priority on the host of tenants' own classes,
// and whether pods of these may put others out. ok is false if they have none.
func (s Switches) PriorityBound() (highest int32, preempt, ok bool) {
	value, preempt := strings.CutPrefix(s.Value(ExportedPriorityClasses), Preempting)
	highest, ok = bound(value)
	return highest, preempt && ok, ok
}

// Provisioners returns those that tenants' own storage classes may name.
func (s Switches) Provisioners() []string {
	value := s.Value(ExportedStorageClasses)
	if value == Off {
		return nil
	}
	return strings.Split(value, "+")
}

// takes reports whether value is one of the kind's.
func (k Kind) takes(value string) bool {
	return slices.ContainsFunc(k.Values, func(v string) bool {
		switch v {
		case Selector: // a word alone is one, too, but more likely a mistake
			_, err := labels.Parse(value)
			return err == nil && strings.Contains(value, "=")
		case Bound:
			_, ok := bound(value)
			return ok
		case PreemptingBound:
			number, preempting := strings.CutPrefix(value, Preempting)
			_, ok := bound(number)
			return preempting && ok
		case Provisioners:
			return value != Off && !slices.ContainsFunc(strings.Split(value, "+"), func(name string) bool {
				return len(validation.IsQualifiedName(strings.ToLower(name))) > 0 || !strings.ContainsAny(name, "./")
			})
		default:
			return v == value
		}
	})
}

// bound reads a priority as high as users of a cluster may give.
func bound(value string) (int32, bool) {
	n, err := strconv.ParseInt(value, 10, 32)
	return int32(n), err == nil && n <= highestPriority
}

// highestPriority is Kubernetes' bound on classes that are not the system's.
const highestPriority = 1_000_000_000

func (k Kind) possible() string {
	words := slices.Clone(k.Values)
	for i, word := range words {
		switch word {
		case Selector:
			words[i] = "a label selector such as " + ImportSelector
		case Bound:
			words[i] = "the highest priority"
		case PreemptingBound:
			words[i] = Preempting + " before it"
		case Provisioners:
			words[i] = "names of provisioners with + between them"
		}
	}
	if slices.Contains(k.Values, Selector) {
		words = slices.DeleteFunc(words, func(w string) bool { return w == ImportSelector })
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// placeholder reports whether a value stands for others.
func placeholder(value string) bool {
	return slices.Contains([]string{Selector, Bound, PreemptingBound, Provisioners}, value)
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
			if (valued && k.Name == name || k.Name == typed) && !placeholder(value) && strings.HasPrefix(k.Name+"="+value, typed) {
				out = append(out, k.Name+"="+value)
			}
		}
	}
	return out
}

// Markdown is the table as docs/syncing.md has it.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| kind | direction | default | switch | what comes back, or is imported | rewritten, and left out |\n|---|---|---|---|---|---|\n")
	for _, k := range Table() {
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s | %s |\n",
			k.Name, k.Direction, k.Default(), "`"+strings.Join(k.Values, "`, `")+"`", k.Status, k.Rewritten)
	}
	return b.String()
}
