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

// SyncOptions say what is synced. The zero value has every resource at its default.
type SyncOptions struct{ set map[string]string }

// Parse reads sync options of the form RESOURCE=VALUE. The last of a resource counts.
func Parse(args []string) (SyncOptions, error) {
	s := SyncOptions{set: map[string]string{}}
	for _, arg := range args {
		name, value, found := strings.Cut(arg, "=")
		resource, known := find(name)
		switch {
		case !known:
			return SyncOptions{}, fmt.Errorf("%q is not a resource that is synced; there are %s", name, strings.Join(names(), ", "))
		case name == Pods && value == Off:
			return SyncOptions{}, fmt.Errorf("%s=%s: this would terminate all pods; if you want that, set %[1]s=%[3]s", name, value, OffAndDeletePods)
		case !found || !resource.takes(value):
			return SyncOptions{}, fmt.Errorf("%s=%s: must be %s", name, value, resource.possible())
		}
		if value == OffAndDeletePods {
			value = Off
		}
		s.set[name] = value
	}
	if s.On(DaemonSets) && s.Value(Nodes) != All {
		return SyncOptions{}, fmt.Errorf("%s=%s: a DaemonSet runs a pod on each node that its space sees; show them, with %s=%s, too",
			DaemonSets, s.Value(DaemonSets), Nodes, All)
	}
	if s.On(HTTPRoutes) && !s.On(Gateways) {
		return SyncOptions{}, fmt.Errorf("%s=%s: a route attaches to gateways; sync them, with %s=%s, too", HTTPRoutes, s.Value(HTTPRoutes), Gateways, On)
	}
	return s, nil
}

// Args is s in the form that Parse reads, less what is the default.
func (s SyncOptions) Args() []string {
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

// Value of a resource's option.
func (s SyncOptions) Value(name string) string {
	if value, ok := s.set[name]; ok {
		return value
	}
	resource, _ := find(name)
	return resource.Default()
}

// On reports whether a resource is synced at all.
func (s SyncOptions) On(name string) bool { return s.Value(name) != Off }

// Watched reports whether the host's objects of a resource are watched: it is enabled, or others need these objects.
func (s SyncOptions) Watched(r Resource) bool {
	return s.On(r.Name) || r.Read || r.Name == Ingresses && s.On(Gateways)
}

// Within returns what a space gets that asks for s where offer is what the platform offers: of the host's classes only those that
// both select. It fails if s has more than that of a resource.
func (s SyncOptions) Within(offer SyncOptions) (SyncOptions, error) {
	granted := SyncOptions{set: map[string]string{}}
	for _, r := range Table() {
		value, ok := r.within(s.Value(r.Name), offer.Value(r.Name))
		if !ok {
			return SyncOptions{}, &NotOfferedError{Resource: r.Name, Value: s.Value(r.Name), Offer: offer.Value(r.Name)}
		}
		if value != r.Default() {
			granted.set[r.Name] = value
		}
	}
	return granted, nil
}

// NotOfferedError is the error of [SyncOptions.Within].
type NotOfferedError struct{ Resource, Value, Offer string }

func (e *NotOfferedError) Error() string {
	return fmt.Sprintf("%s=%s: the platform offers %[1]s=%[3]s", e.Resource, e.Value, e.Offer)
}

// extent orders the values that are words: what a higher one syncs includes what a lower one does.
func extent(value string) int {
	return slices.Index([]string{Off, VirtualNodes, Used, Translated, All, On}, value)
}

// within returns the value that a space gets that asks for one, where another is offered, and whether the one is within the other.
func (r Resource) within(value, offer string) (granted string, ok bool) {
	switch {
	case value == offer, value == Off:
		return value, true
	case offer == Off:
		return "", false
	case slices.Contains(r.Values, Selector):
		if offer == On {
			return value, true
		}
		return value + "," + offer, value != On
	case slices.Contains(r.Values, Bound):
		asked, asksPreempting := strings.CutPrefix(value, Preempting)
		most, mayPreempt := strings.CutPrefix(offer, Preempting)
		number, _ := bound(asked)
		highest, _ := bound(most)
		return value, number <= highest && (mayPreempt || !asksPreempting)
	case slices.Contains(r.Values, Provisioners):
		offered := strings.Split(offer, "+")
		return value, !slices.ContainsFunc(strings.Split(value, "+"), func(name string) bool { return !slices.Contains(offered, name) })
	case slices.Contains(r.Values, Handles):
		return value, handlesWithin(value, offer)
	default:
		return value, extent(value) <= extent(offer)
	}
}

// Selects returns which of the host's objects of a resource spaces import.
func (s SyncOptions) Selects(name string) labels.Selector {
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
func (s SyncOptions) PriorityBound() (highest int32, preempt, ok bool) {
	value, preempt := strings.CutPrefix(s.Value(ExportedPriorityClasses), Preempting)
	highest, ok = bound(value)
	return highest, preempt && ok, ok
}

// Provisioners returns those that tenants' own storage classes may name.
func (s SyncOptions) Provisioners() []string {
	value := s.Value(ExportedStorageClasses)
	if value == Off {
		return nil
	}
	return strings.Split(value, "+")
}

// takes reports whether value is one of the resource's.
func (r Resource) takes(value string) bool {
	return slices.ContainsFunc(r.Values, func(v string) bool {
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
		case Handles:
			_, ok := volumeRules(value)
			return ok
		default:
			return v == value
		}
	})
}

// bound reads a priority as high as users of a cluster may give, and not below that of a pod without a class.
func bound(value string) (int32, bool) {
	n, err := strconv.ParseInt(value, 10, 32)
	return int32(n), err == nil && 0 <= n && n <= highestPriority
}

// highestPriority is Kubernetes' bound on classes that are not the system's.
const highestPriority = 1_000_000_000

func (r Resource) possible() string {
	words := slices.Clone(r.Values)
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
		case Handles:
			words[i] = "for each driver, DRIVER=HANDLES, where HANDLES is the beginning of its volume handles with " + SpacePlaceholder +
				"/ in it, or " + AnyHandle + " and a beginning that all spaces share, with + between them"
		}
	}
	if slices.Contains(r.Values, Selector) {
		words = slices.DeleteFunc(words, func(w string) bool { return w == ImportSelector })
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func names() []string {
	var out []string
	for _, r := range Table() {
		out = append(out, r.Name)
	}
	return out
}

// Markdown is the table as docs/reference/sync.md has it.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| resource | direction | default | sync option | what comes back, or is imported | rewritten, and left out |\n|---|---|---|---|---|---|\n")
	for _, r := range Table() {
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s | %s |\n",
			r.Name, r.Direction, r.Default(), "`"+strings.Join(r.Values, "`, `")+"`", r.Status, r.Rewritten)
	}
	return b.String()
}
