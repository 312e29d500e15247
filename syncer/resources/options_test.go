// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resources_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/berth-dev/berth/syncer/resources"
)

// S1: each resource has an option, and an error says what is possible.
func TestSyncOptionsAreParsedAgainstTheTable(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		wrong  []string // words of the error
		want   map[string]string
	}{
		"none":        {reason: "defaults hold", want: map[string]string{"pods": "on", "configmaps": "used", "poddisruptionbudgets": "off"}},
		"some":        {reason: "others keep their defaults", args: []string{"ingresses=off", "configmaps=all"}, want: map[string]string{"ingresses": "off", "configmaps": "all", "secrets": "used"}},
		"twice":       {reason: "the last counts", args: []string{"services=off", "services=on"}, want: map[string]string{"services": "on"}},
		"selector":    {reason: "the admin chooses", args: []string{"priorityclasses=tier in (a,b),x=y"}, wrong: nil, want: map[string]string{"priorityclasses": "tier in (a,b),x=y"}},
		"bad kind":    {reason: "resources are named", args: []string{"deployments=on"}, wrong: []string{`"deployments"`, "pods", "networkpolicies", "priorityclasses"}},
		"needed":      {reason: "an admin shows nodes knowingly", args: []string{"daemonsets=translated", "nodes=standins"}, wrong: []string{"daemonsets=translated", "nodes=all"}},
		"there":       {reason: "in any order", args: []string{"daemonsets=translated", "nodes=all"}, want: map[string]string{"daemonsets": "translated", "nodes": "all"}},
		"apart":       {reason: "without gateways nobody would look after routes that are on the host", args: []string{"httproutes=on"}, wrong: []string{"httproutes=on", "gateways=on"}},
		"together":    {reason: "they need not be", args: []string{"gateways=on"}, want: map[string]string{"gateways": "on", "httproutes": "off"}},
		"bad value":   {reason: "values are named", args: []string{"configmaps=on"}, wrong: []string{"configmaps=on", "used", "all", "off"}},
		"no value":    {reason: "nothing is guessed", args: []string{"pods"}, wrong: []string{"pods", "on or off"}},
		"no such":     {reason: "a word is no selector", args: []string{"storageclasses=yes"}, wrong: []string{"on", "off", "label selector"}},
		"placeholder": {reason: "it stands for a selector", args: []string{"storageclasses=SELECTOR"}, wrong: []string{"label selector"}},
		"bound":       {reason: "the admin bounds priorities", args: []string{"ownpriorityclasses=5"}, want: map[string]string{"ownpriorityclasses": "5", "ownstorageclasses": "off"}},
		"preempting":  {reason: "and says whether they preempt", args: []string{"ownpriorityclasses=preempting:100"}, want: map[string]string{"ownpriorityclasses": "preempting:100"}},
		"provisioner": {reason: "each is named", args: []string{"ownstorageclasses=ebs.csi.aws.com+example.com/nfs"}, want: map[string]string{"ownstorageclasses": "ebs.csi.aws.com+example.com/nfs"}},
		"the system":  {reason: "its priorities are higher", args: []string{"ownpriorityclasses=2000000000"}, wrong: []string{"the highest priority", "preempting:"}},
		"below zero":  {reason: "pods without a class would preempt these pods", args: []string{"ownpriorityclasses=-5"}, wrong: []string{"the highest priority"}},
		"no bound":    {reason: "on would be no bound", args: []string{"ownpriorityclasses=on"}, wrong: []string{"off", "the highest priority"}},
		"any":         {reason: "there is no word for all", args: []string{"ownstorageclasses=on"}, wrong: []string{"off", "provisioners"}},
		"empty":       {reason: "a slip", args: []string{"ownstorageclasses=a.b++c.d"}, wrong: []string{"provisioners"}},
		"handles":     {reason: "handles name their space", args: []string{"ownpersistentvolumes=d.example={space}/+e.example=any:a"}, want: map[string]string{"ownpersistentvolumes": "d.example={space}/+e.example=any:a"}},
		"no handles":  {reason: "S1: a tenant could name the volumes of all", args: []string{"ownpersistentvolumes=d.example"}, wrong: []string{"{space}/", "any:"}},
		"no rule":     {reason: "S1: no rule is not any", args: []string{"ownpersistentvolumes=d.example="}, wrong: []string{"any:"}},
		"unmarked":    {reason: "S1: what all spaces share is marked", args: []string{"ownpersistentvolumes=d.example=vol-"}, wrong: []string{"any:"}},
		"open end":    {reason: "S1: handles of shop-2 begin with shop", args: []string{"ownpersistentvolumes=d.example=a/{space}"}, wrong: []string{"{space}/"}},
		"open dash":   {reason: "S1: handles of shop-2 begin with shop-", args: []string{"ownpersistentvolumes=d.example={space}-"}, wrong: []string{"{space}/"}},
		"two forms":   {reason: "S1: a space called a would have those of all", args: []string{"ownpersistentvolumes=d.example={space}/+d.example=a/{space}/"}, wrong: []string{"{space}/"}},
		"both":        {reason: "it is one or the other", args: []string{"ownpersistentvolumes=d.example=any:{space}/"}, wrong: []string{"any:"}},
		"a quote":     {reason: "the host's policies contain it", args: []string{"ownpersistentvolumes=d.example=any:a'b"}, wrong: []string{"any:"}},
		"no driver":   {reason: "drivers are named", args: []string{"ownpersistentvolumes=-x=any:"}, wrong: []string{"DRIVER"}},
		"pods":        {reason: "B16: a slip must not terminate all pods", args: []string{"pods=off"}, wrong: []string{"terminate all pods", "pods=off-and-delete-pods"}},
		"confirmed":   {reason: "B16: an admin may want it", args: []string{"pods=off-and-delete-pods"}, want: map[string]string{"pods": "off"}},
		"broken":      {reason: "selectors are checked", args: []string{"runtimeclasses=a=b=c"}, wrong: []string{"label selector"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := resources.Parse(tc.args)
			if (err != nil) != (tc.wrong != nil) {
				t.Fatalf("%s: got error %v", tc.reason, err)
			}
			for _, word := range tc.wrong {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%s: %q does not say %q", tc.reason, err, word)
				}
			}
			for kind, want := range tc.want {
				if got.Value(kind) != want {
					t.Errorf("%s: %s is %q, want %q", tc.reason, kind, got.Value(kind), want)
				}
			}
			again, err := resources.Parse(got.Args())
			if err != nil || !slices.Equal(again.Args(), got.Args()) {
				t.Errorf("%v is not read back: %v, %v", got.Args(), again.Args(), err)
			}
		})
	}
}

// S2: admins choose which of the host's classes spaces see.
func TestSelectorsChooseWhatIsImported(t *testing.T) {
	s, err := resources.Parse([]string{"storageclasses=off", "ingressclasses=on"})
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string][2]bool{ // unlabelled, labelled
		"storageclasses": {false, false}, "ingressclasses": {true, true}, "priorityclasses": {false, true}, "runtimeclasses": {false, true},
	} {
		got := [2]bool{s.Selects(kind).Matches(labels.Set{}), s.Selects(kind).Matches(labels.Set{"berth.dev/show": "true"})}
		if got != want {
			t.Errorf("%s imports unlabelled and labelled ones: %v, want %v", kind, got, want)
		}
	}
}

// The documentation is the table: a resource that is added or changed is documented.
func TestTheDocumentationHoldsTheTable(t *testing.T) {
	doc, err := os.ReadFile("../../docs/reference/sync.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := resources.Markdown(); !strings.Contains(string(doc), want) {
		t.Errorf("docs/reference/sync.md does not hold this table; put it in the old one's place:\n%s", want)
	}
}

// B12: each reconcile reads options, so that to read one costs nothing.
func TestAnOptionIsReadWithoutAllocations(t *testing.T) {
	var s resources.SyncOptions
	if n := testing.AllocsPerRun(100, func() { s.On(resources.Gateways) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestEachResourceOnTheHostIsDescribedOnce(t *testing.T) {
	of := map[string]string{}
	for _, r := range resources.Table() {
		if r.Type == nil {
			if r.Direction != resources.InSpace {
				t.Errorf("%s: it has no type", r.Name)
			}
			continue
		}
		if gvr, gvk := r.GVR(), r.GVK(); gvr.Group != gvk.Group || gvr.Version == "" || gvk.Kind == "" {
			t.Errorf("%s: it is %v of kind %v", r.Name, gvr, gvk)
		}
		if r.Direction == resources.FromHost {
			continue
		}
		if there, ok := resources.ToHostOf(r.New()); !ok || there.Name != r.Name {
			t.Errorf("%s: its objects are those of %q", r.Name, there.Name)
		}
		if other := of[r.GVR().String()]; other != "" {
			t.Errorf("%s and %s are one resource of the host", r.Name, other)
		}
		of[r.GVR().String()] = r.Name
		if r.Selector == "" && r.Exposure == nil {
			t.Errorf("%s: all objects of the host are watched, though nothing needs others than spaces'", r.Name)
		}
	}
}

// S1, T7: a space has at most what the platform offers.
func TestASpaceSyncsNoMoreThanIsOffered(t *testing.T) {
	type row struct{ reason, offer, asks, gets, refused string }
	for name, tc := range map[string]row{
		"the same":            {"it is what spaces have by default", "nodes=all", "nodes=all", "nodes=all", ""},
		"off":                 {"anything can be turned off", "ingresses=on", "ingresses=off", "ingresses=off", ""},
		"pods":                {"also pods, knowingly", "pods=on", "pods=off-and-delete-pods", "pods=off", ""},
		"on":                  {"the platform has no rights for it", "ingresses=off", "ingresses=on", "", "ingresses=on: the platform offers ingresses=off"},
		"by default":          {"nobody has offered it", "", "poddisruptionbudgets=on", "", "poddisruptionbudgets=off"},
		"fewer nodes":         {"virtual nodes disclose less", "nodes=all", "nodes=standins", "nodes=standins", ""},
		"more nodes":          {"the host's nodes are not watched", "nodes=standins", "nodes=all", "", "nodes=standins"},
		"used":                {"it is part of all", "secrets=all", "secrets=used", "secrets=used", ""},
		"all":                 {"it is more than what is used", "secrets=used", "secrets=all", "", "secrets=used"},
		"some classes":        {"all are for spaces", "storageclasses=on", "storageclasses=tier=a", "storageclasses=tier=a", ""},
		"some of some":        {"a class must be selected by both", "storageclasses=tier=a", "storageclasses=disk=ssd", "storageclasses=disk=ssd,tier=a", ""},
		"all classes":         {"the admin chose some", "storageclasses=tier=a", "storageclasses=on", "", "storageclasses=tier=a"},
		"labeled classes":     {"of those that any space may have", "ingressclasses=on", "ingressclasses=berth.dev/show=true", "ingressclasses=berth.dev/show=true", ""},
		"classes that aren't": {"none are", "runtimeclasses=off", "runtimeclasses=tier=a", "", "runtimeclasses=off"},
		"lower priority":      {"it is below the bound", "ownpriorityclasses=preempting:100", "ownpriorityclasses=5", "ownpriorityclasses=5", ""},
		"lower, preempting":   {"both are offered", "ownpriorityclasses=preempting:100", "ownpriorityclasses=preempting:99", "ownpriorityclasses=preempting:99", ""},
		"higher priority":     {"it is above the bound", "ownpriorityclasses=preempting:100", "ownpriorityclasses=101", "", "ownpriorityclasses=preempting:100"},
		"preempting":          {"only priorities are offered", "ownpriorityclasses=100", "ownpriorityclasses=preempting:5", "", "ownpriorityclasses=100"},
		"a provisioner":       {"it is one of them", "ownstorageclasses=a.example+b.example", "ownstorageclasses=b.example", "ownstorageclasses=b.example", ""},
		"a driver":            {"it is one of them", "ownpersistentvolumes=a={space}/+b=any:", "ownpersistentvolumes=b=any:", "ownpersistentvolumes=b=any:", ""},
		"fewer handles":       {"they are some of these", "ownpersistentvolumes=b=any:vol-", "ownpersistentvolumes=b=any:vol-0a", "ownpersistentvolumes=b=any:vol-0a", ""},
		"its own handles":     {"they are some of these", "ownpersistentvolumes=b=any:", "ownpersistentvolumes=b={space}/", "ownpersistentvolumes=b={space}/", ""},
		"others' handles":     {"they are those of all spaces", "ownpersistentvolumes=b={space}/", "ownpersistentvolumes=b=any:", "", "ownpersistentvolumes=b={space}/"},
		"another driver":      {"its handles are others", "ownpersistentvolumes=b=any:", "ownpersistentvolumes=a=any:", "", "ownpersistentvolumes=b=any:"},
		"another provisioner": {"its parameters were not looked at", "ownstorageclasses=a.example", "ownstorageclasses=a.example+b.example", "", "ownstorageclasses=a.example"},
	} {
		t.Run(name, func(t *testing.T) {
			parsed := func(args ...string) resources.SyncOptions {
				options, err := resources.Parse(slices.DeleteFunc(args, func(arg string) bool { return arg == "" }))
				if err != nil {
					t.Fatal(err)
				}
				return options
			}
			got, err := parsed(tc.asks).Within(parsed(tc.offer))
			if tc.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("%s: got %v, want an error that says %q", tc.reason, err, tc.refused)
				}
				return
			}
			resource, value, _ := strings.Cut(tc.gets, "=")
			if err != nil || got.Value(resource) != value {
				t.Errorf("%s: %s is %q (%v), want %q", tc.reason, resource, got.Value(resource), err, value)
			}
			if other := "configmaps"; got.Value(other) != parsed().Value(other) {
				t.Errorf("%s is %q, which nobody asked for", other, got.Value(other))
			}
		})
	}
}
