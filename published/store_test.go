// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package published_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/published"
	"github.com/berth-dev/berth/published/expression"
	"github.com/berth-dev/berth/sharing"
)

// H8, P1: what a tenant shares takes the place of no object of an admin's publication, whatever its name is.
func TestWhatTenantsShareDoesNotDisplacePublications(t *testing.T) {
	store, _ := newStore(t)
	every := object("zones", "a", "NetworkPolicy", "web", "closed")
	every.Spec.Namespaces = v1alpha1.EveryNamespace
	replace(t, store, every,
		object("share.00.acme", "a", "NetworkPolicy", "apps", "closed"), object("share.00.acme", "b", "ConfigMap", "apps", "names"), object("share.00.acme", "c", "ConfigMap", "apps", "own"),
		object("z", "a", "ConfigMap", "apps", "names", field("data.tenant", "tenant.labels.missing")))
	result, err := store.Render(t.Context(), []string{"share.00.acme", "z", "zones"}, expression.Subject{}, expression.Subject{Name: "dev"})
	if err != nil || len(result.Objects) != 2 || result.Objects[0].Publication != "zones" || result.Objects[1].Object.GetName() != "own" {
		t.Errorf("%v: %+v, problems %v", err, result.Objects, result.Problems)
	}
}

// P1: a space has the objects of its publications, in its own form.
func TestRenderMakesTheCopiesOfASpace(t *testing.T) {
	store, _ := newStore(t)
	replace(t, store,
		object("limits", "b", "LimitRange", "default", "limits"),
		object("names", "a", "ConfigMap", "apps", "names", field("data.tenant", "tenant.name"), field(`data["space.tier"]`, "space.labels.tier")),
		object("other", "a", "ConfigMap", "apps", "other"))
	solar := expression.Subject{Name: "solar"}
	got := render(t, store, []string{"names", "limits", "names", "absent"}, solar, expression.Subject{Name: "solar-dev", Labels: map[string]string{"tier": "gold"}})
	want := []string{"limits: LimitRange default/limits map[]", "names: ConfigMap apps/names map[space.tier:gold tenant:solar]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got = render(t, store, []string{"names"}, solar, expression.Subject{Name: "other", Labels: map[string]string{"tier": "tin"}})
	if diff := cmp.Diff([]string{"names: ConfigMap apps/names map[space.tier:tin tenant:solar]"}, got); diff != "" {
		t.Errorf("another space, (-want +got):\n%s", diff)
	}
}

// P1: a path may stand for each element of a list, and an expression sees what the field has before.
func TestFieldsOfEachElementAreMadeOfTheirValues(t *testing.T) {
	store, _ := newStore(t)
	replace(t, store, object("names", "a", "ConfigMap", "apps", "names", field("data.list", "['a', 'b']"), field("data.list[*]", "value + '!'"), field("data.none[*]", "'x'")))
	got := render(t, store, []string{"names"}, expression.Subject{}, expression.Subject{Name: "dev"})
	if diff := cmp.Diff([]string{"names: ConfigMap apps/names map[list:[a! b!]]"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// P1: what can't be rendered is reported, and doesn't keep other objects from the space.
func TestRenderLeavesOutWhatItCannotRender(t *testing.T) {
	store, _ := newStore(t)
	broken := object("broken", "a", "ConfigMap", "apps", "broken")
	broken.Spec.Object.Raw = []byte(`{"kind":`)
	replace(t, store, broken,
		object("label", "a", "ConfigMap", "apps", "label", field("data.tier", "space.labels.tier")),
		object("path", "a", "ConfigMap", "apps", "path", field("metadata.name", "'x'")),
		object("syntax", "a", "ConfigMap", "apps", "syntax", field("data.x", "1 +")),
		object("valid", "a", "ConfigMap", "apps", "valid"))
	result, err := store.Render(t.Context(), []string{"broken", "label", "path", "syntax", "valid"}, expression.Subject{}, expression.Subject{Name: "dev"})
	if err != nil || len(result.Objects) != 1 || !result.Incomplete {
		t.Errorf("%v, %d objects, incomplete %v", err, len(result.Objects), result.Incomplete)
	}
	if len(result.Problems) != 4 {
		t.Fatalf("problems: %v", result.Problems)
	}
	for i, want := range [][]string{
		{"publication broken", "read object"}, {"ConfigMap apps/label of publication label", "spec.fields[0], for data.tier", "no such key: tier"},
		{"spec.fields[0].path", "can't be set"}, {"spec.fields[0].expression", "Syntax error"},
	} {
		for _, part := range want {
			if problem := result.Problems[i].Error(); !strings.Contains(problem, part) {
				t.Errorf("%q doesn't say %q", problem, part)
			}
		}
	}
}

// P1: two publications of one object don't fight over its copy.
func TestRenderCopiesAnObjectOfTwoPublicationsOnce(t *testing.T) {
	store, _ := newStore(t)
	every := object("c", "a", "ConfigMap", "somewhere", "names")
	every.Spec.Namespaces = v1alpha1.EveryNamespace
	replace(t, store, object("b", "a", "ConfigMap", "apps", "names"), object("a", "z", "ConfigMap", "apps", "names"), every,
		object("c", "b", "ConfigMap", "apps", "more"), object("c", "c", "Role", "apps", "names"))
	result, err := store.Render(t.Context(), []string{"c", "b", "a"}, expression.Subject{}, expression.Subject{})
	if err != nil || len(result.Problems) != 2 || result.Incomplete {
		t.Fatalf("%v, %v, incomplete %v", err, result.Problems, result.Incomplete)
	}
	var of []string
	for _, p := range result.Objects {
		of = append(of, p.Publication+" "+p.Object.GetKind()+" "+p.Object.GetName())
	}
	if diff := cmp.Diff([]string{"a ConfigMap names", "c ConfigMap more", "c Role names"}, of); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// P1: until all objects were read, a space keeps the copies that it has.
func TestRenderWaitsUntilTheObjectsWereRead(t *testing.T) {
	store, changes := newStore(t)
	if _, err := store.Render(t.Context(), []string{"a"}, expression.Subject{}, expression.Subject{}); !errors.Is(err, published.ErrNotRead) {
		t.Errorf("a space with a publication: %v", err)
	}
	if result, err := store.Render(t.Context(), nil, expression.Subject{}, expression.Subject{}); err != nil || len(result.Objects) > 0 {
		t.Errorf("a space without publications: %v, %v", result, err)
	}
	replace(t, store)
	if diff := cmp.Diff([][]string{nil}, *changes); diff != "" || !store.Read() {
		t.Errorf("read %v, changes (-want +got):\n%s", store.Read(), diff)
	}
}

// P1: a change concerns the spaces of its publication, and no others.
func TestStoreReportsWhosePublicationsChanged(t *testing.T) {
	store, changes := newStore(t)
	first, second := object("a", "x", "ConfigMap", "n", "x"), object("b", "y", "ConfigMap", "n", "y")
	replace(t, store, first, second)
	replace(t, store, first, second) // as a new list after a lost connection
	changed := first.DeepCopy()
	changed.ResourceVersion = "2"
	moved := changed.DeepCopy()
	moved.ResourceVersion, moved.Labels = "3", map[string]string{v1alpha1.LabelPublication: "c"}
	for _, step := range []error{
		store.Add(first), store.Update(changed), store.Update(moved), store.Delete(moved), store.Delete(moved), store.Add(object("", "z", "ConfigMap", "n", "z")),
		store.Replace(nil, ""),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	want := [][]string{nil, {"a"}, {"a", "c"}, {"c"}, {"b"}}
	if diff := cmp.Diff(want, *changes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever the order in which objects arrive, a space has the same copies in the same order.
func TestRenderDoesNotDependOnTheOrderOfArrival(t *testing.T) {
	var objects []*v1alpha1.PublishedObject
	for i := range 12 {
		objects = append(objects, object(string(rune('a'+i%3)), fmt.Sprint(i), "ConfigMap", "n", fmt.Sprint(i%7)))
	}
	names := []string{"a", "b", "c"}
	inOrder, _ := newStore(t)
	replace(t, inOrder, objects...)
	want := render(t, inOrder, names, expression.Subject{}, expression.Subject{})
	rapid.Check(t, func(r *rapid.T) {
		store, _ := newStore(t)
		replace(t, store)
		for _, o := range rapid.Permutation(objects).Draw(r, "order") {
			if err := store.Add(o); err != nil {
				r.Fatal(err)
			}
		}
		got := render(t, store, rapid.Permutation(names).Draw(r, "names"), expression.Subject{}, expression.Subject{})
		if diff := cmp.Diff(want, got); diff != "" {
			r.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func newStore(t *testing.T) (*published.Store, *[][]string) {
	t.Helper()
	changes := &[][]string{}
	store, err := published.NewStore(func(publications []string) { *changes = append(*changes, publications) })
	if err != nil {
		t.Fatal(err)
	}
	return store, changes
}

func replace(t *testing.T, store *published.Store, objects ...*v1alpha1.PublishedObject) {
	t.Helper()
	items := make([]any, 0, len(objects))
	for _, o := range objects {
		items = append(items, o)
	}
	if err := store.Replace(items, ""); err != nil {
		t.Fatal(err)
	}
}

func render(t *testing.T, store *published.Store, publications []string, tenant, space expression.Subject) (copies []string) {
	t.Helper()
	result, err := store.Render(t.Context(), publications, tenant, space)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range result.Objects {
		data, _ := p.Object.Object["data"].(map[string]any)
		copies = append(copies, fmt.Sprintf("%s: %s %s/%s %v", p.Publication, p.Object.GetKind(), p.Object.GetNamespace(), p.Object.GetName(), data))
	}
	return copies
}

func object(publication, name, kind, namespace, of string, fields ...v1alpha1.PublicationField) *v1alpha1.PublishedObject {
	version := map[string]string{"Role": "rbac.authorization.k8s.io/v1"}[kind]
	if version == "" {
		version = "v1"
	}
	raw, err := json.Marshal(map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"namespace": namespace, "name": of}})
	if err != nil {
		panic(err)
	}
	return &v1alpha1.PublishedObject{
		ObjectMeta: metav1.ObjectMeta{Name: publication + "-" + name, ResourceVersion: "1", Labels: map[string]string{v1alpha1.LabelPublication: publication}},
		Spec:       v1alpha1.PublishedObjectSpec{Object: runtime.RawExtension{Raw: raw}, Namespaces: v1alpha1.SameNamespace, Fields: fields},
	}
}

func field(path, expression string) v1alpha1.PublicationField {
	return v1alpha1.PublicationField{Path: path, Expression: expression}
}

// M3, H8: a tenant in the middle of the tree doesn't put an object in the place of one that a tenant above it shares.
func TestHostileTenantInTheMiddleDoesNotReplaceWhatComesFromAbove(t *testing.T) {
	store, _ := newStore(t)
	top := sharing.Publication(sharing.Space{Name: "zeta"}, sharing.Class{Scope: v1alpha1.ScopeDescendants})
	middle := sharing.Publication(sharing.Space{Name: "middle", Depth: 1}, sharing.Class{Scope: v1alpha1.ScopeDescendants})
	replace(t, store, object(top, "a", "NetworkPolicy", "apps", "closed"), object(middle, "b", "NetworkPolicy", "apps", "closed"))
	result, err := store.Render(t.Context(), []string{middle, top}, expression.Subject{}, expression.Subject{Name: "grandchild"})
	if err != nil || len(result.Objects) != 1 || result.Objects[0].Publication != top {
		t.Errorf("%v: the space gets %v, problems %v", err, result.Objects, result.Problems)
	}
}

// P1, H8: an object that can't be copied, which a process that was taken over shares, doesn't keep other copies from being deleted.
func TestHostileObjectWithoutANameDoesNotKeepOtherCopies(t *testing.T) {
	store, _ := newStore(t)
	nameless := object("share.00.acme", "a", "ConfigMap", "web", "x")
	nameless.Spec.Object.Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"web","name":""}}`)
	replace(t, store, nameless, object("zones", "b", "ConfigMap", "web", "y"))
	result, err := store.Render(t.Context(), []string{"share.00.acme", "zones"}, expression.Subject{}, expression.Subject{Name: "dev"})
	if err != nil || result.Incomplete || len(result.Objects) != 1 || len(result.Problems) != 1 {
		t.Errorf("%v: incomplete %v, objects %v, problems %v", err, result.Incomplete, result.Objects, result.Problems)
	}
}
