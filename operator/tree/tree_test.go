// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// model answers the same questions as a Tree, by going through all tenants each time.
type model map[string]Tenant

func (m model) ancestors(name string) (all []string) {
	one, known := m[name]
	for parent := one.Parent; known && parent != name && !slices.Contains(all, parent); parent = one.Parent {
		if one, known = m[parent]; known {
			all = append(all, parent)
		}
	}
	return all
}

func (m model) bequeathers(name string) (all []string) {
	if m[name].Private {
		return nil
	}
	for _, ancestor := range m.ancestors(name) {
		if all = append(all, ancestor); m[ancestor].Private {
			break
		}
	}
	return all
}

// those returns the names, sorted, whose lists have a name.
func (m model) those(list func(string) []string, name string) (all []string) {
	for other := range m {
		if slices.Contains(list(other), name) {
			all = append(all, other)
		}
	}
	slices.Sort(all)
	return all
}

func names() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h"})
}

func tenants(t *rapid.T) Tenant {
	tenant := Tenant{Private: rapid.Bool().Draw(t, "private")}
	if rapid.IntRange(0, 3).Draw(t, "root") > 0 {
		tenant.Parent = names().Draw(t, "parent")
	}
	return tenant
}

// H2, H3: after any changes, in any order, the tree says of each tenant what a search through all of them says.
func TestTheTreeIsWhatASearchFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tree Tree
		m := model{}
		equal := func(what, name string, got, want []string) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Fatalf("%s of %s in %v: got %v, want %v", what, name, m, got, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				name, tenant := names().Draw(t, "name"), tenants(t)
				tree.Set(name, tenant)
				m[name] = tenant
			},
			"remove": func(t *rapid.T) {
				name := names().Draw(t, "name")
				tree.Remove(name)
				delete(m, name)
			},
			"": func(*rapid.T) {
				for name := range m {
					if got, known := tree.Get(name); !known || got != m[name] {
						t.Fatalf("%s is %v, %v, want %v", name, got, known, m[name])
					}
					equal("ancestors", name, tree.Ancestors(name), m.ancestors(name))
					equal("bequeathers", name, tree.Bequeathers(name), m.bequeathers(name))
					equal("descendants", name, tree.Descendants(name), m.those(m.ancestors, name))
					equal("heirs", name, tree.Heirs(name), m.those(m.bequeathers, name))
				}
			},
		})
	})
}

// H1, H4: whatever is set and removed, a tree of tenants that passed Check has no cycle, no tenant that is too deep, and no private
// one below one that is neither private nor a root. A tenant is removed only if none is below it.
func TestATreeThatIsCheckedKeepsTheRules(t *testing.T) {
	const most = 3
	rapid.Check(t, func(t *rapid.T) {
		var tree Tree
		m := model{}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				name, tenant := names().Draw(t, "name"), tenants(t)
				if tree.Check(name, tenant, most) == nil {
					tree.Set(name, tenant)
					m[name] = tenant
				}
			},
			"remove": func(t *rapid.T) {
				if name := names().Draw(t, "name"); len(tree.Descendants(name)) == 0 {
					tree.Remove(name)
					delete(m, name)
				}
			},
			"": func(t *rapid.T) {
				for name, tenant := range m {
					above := m.ancestors(name)
					if len(above) > most || len(above) > 0 && m[above[len(above)-1]].Parent != "" || len(above) == 0 && tenant.Parent != "" {
						t.Fatalf("%s is below %v in %v", name, above, m)
					}
					if parent := m[tenant.Parent]; tenant.Private && tenant.Parent != "" && !parent.Private && parent.Parent != "" {
						t.Fatalf("%s is private, and its parent is not, in %v", name, m)
					}
				}
			},
		})
	})
}

// KS: the table and the constraints of Keystone's seed.
func TestKeystonesTree(t *testing.T) {
	var tree Tree
	for _, name := range []string{"D", "C", "B", "A"} { // the children first
		tree.Set(name, Tenant{Parent: map[string]string{"B": "A", "C": "A", "D": "B"}[name]})
	}
	var rows []string
	for _, ancestor := range []string{"A", "B", "C", "D"} {
		for _, descendant := range tree.Descendants(ancestor) {
			rows = append(rows, ancestor+descendant)
		}
	}
	if want := []string{"AB", "AC", "AD", "BD"}; !slices.Equal(rows, want) {
		t.Errorf("the table is %v, want %v", rows, want)
	}
	if above := tree.Ancestors("D"); !slices.Equal(above, []string{"B", "A"}) {
		t.Errorf("above D are %v", above)
	}
	for name, tc := range map[string]struct {
		name   string
		tenant Tenant
		want   string
	}{
		"a child of a child":                 {"E", Tenant{Parent: "D"}, ""},
		"a private child of the root":        {"E", Tenant{Parent: "A", Private: true}, ""},
		"a private one below a public one":   {"E", Tenant{Parent: "B", Private: true}, `the parent "B" is neither private nor a root`},
		"another parent":                     {"D", Tenant{Parent: "C"}, `"B" can't be changed to "C"`},
		"no parent any more":                 {"D", Tenant{}, `"B" can't be changed to ""`},
		"below nobody":                       {"E", Tenant{Parent: "nobody"}, `there is no tenant "nobody"; create it first`},
		"below itself":                       {"E", Tenant{Parent: "E"}, `is below the tenant "E", or is the tenant itself`},
		"too deep":                           {"F", Tenant{Parent: "E"}, `4 tenants would be above "F", and at most 3 are possible`},
		"private, as its parent is not":      {"D", Tenant{Parent: "B", Private: true}, `the parent "B" is neither private nor a root`},
		"private, as its parent is the root": {"C", Tenant{Parent: "A", Private: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.name == "F" {
				tree.Set("E", Tenant{Parent: "D"})
				defer tree.Remove("E")
			}
			err := tree.Check(tc.name, tc.tenant, 3)
			if got := fmt.Sprint(err); tc.want == "" && err != nil || !strings.Contains(got, tc.want) {
				t.Errorf("got %s, want %q", got, tc.want)
			}
		})
	}
	tree.Set("C", Tenant{Parent: "A", Private: true})
	tree.Set("P", Tenant{Parent: "C", Private: true})
	if err := tree.Check("C", Tenant{Parent: "A"}, 3); err == nil || !strings.Contains(err.Error(), `the tenant "P" below is private`) {
		t.Errorf("a parent of a private tenant that is not private any more: %v", err)
	}
	if heirs := tree.Heirs("A"); !slices.Equal(heirs, []string{"B", "D"}) {
		t.Errorf("the rights of A hold in %v", heirs)
	}
}
