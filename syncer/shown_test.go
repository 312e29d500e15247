// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// shownEnv is a space that shows offers of the host, and counts what its syncer writes of them.
type shownEnv struct {
	*testEnv
	d               *declaration.Declaration
	inSpace, atHost client.Client

	mu     sync.Mutex
	writes map[string]int // by method and rest of the path
}

// showsOffers returns the environment of a space that shows offers. Their definition has defaults, beside and in fields that are declared.
func showsOffers(t *testing.T, name string) *shownEnv {
	t.Helper()
	env := &shownEnv{testEnv: newEnv(t, name), writes: map[string]int{}}
	var err error
	if env.inSpace, err = client.New(env.toPlane(), client.Options{Scheme: resources.Scheme()}); err != nil {
		t.Fatal(err)
	}
	if env.atHost, err = client.New(env.cluster.Config(), client.Options{Scheme: resources.Scheme()}); err != nil {
		t.Fatal(err)
	}
	crd := offers(name + ".example.com")
	text := func(value string) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "string", Default: &apiextensionsv1.JSON{Raw: fmt.Appendf(nil, "%q", value)}}
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	spec["level"] = text("low")
	spec["place"] = apiextensionsv1.JSONSchemaProps{Type: "object", Default: &apiextensionsv1.JSON{Raw: []byte("{}")}, Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"zone": text("a"), "rack": text("1"),
	}}
	spec["parts"] = apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"of": {Type: "string"}, "unit": text("kg")},
	}}}
	env.d = env.declare(env.inSpace, env.atHost, crd, v1alpha1.ResourceSyncSpec{
		Direction: v1alpha1.SyncFromHost, Version: "v1", Status: []string{"status.phase"},
		Fields:   []v1alpha1.SyncedField{{Path: "spec.note"}, {Path: "spec.place.zone"}, {Path: "spec.parts[*].of"}},
		Selector: metav1.SetAsLabelSelector(map[string]string{"offered-to": name}),
	})
	return env
}

// offers is a definition of a cluster-scoped resource.
func offers(group string) *apiextensionsv1.CustomResourceDefinition {
	crd := tickets(group)
	crd.Name, crd.Spec.Scope = "offers."+group, apiextensionsv1.ClusterScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "offers", Singular: "offer", Kind: "Offer", ListKind: "OfferList"}
	return crd
}

// count begins a syncer, and counts its writes of offers from now on.
func (env *shownEnv) count() {
	env.t.Helper()
	env.mu.Lock()
	env.writes = map[string]int{}
	env.mu.Unlock()
	env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		resp, err := send()
		_, rest, ok := strings.Cut(c.URL.Path, "/offers")
		if ok && c.to == toSpace && c.writes() && (err != nil || resp.StatusCode != http.StatusConflict) { // by a watch that is behind
			env.mu.Lock()
			defer env.mu.Unlock()
			env.writes[c.Method+" "+rest]++
		}
		return resp, err
	})
}

func (env *shownEnv) written() map[string]int {
	env.mu.Lock()
	defer env.mu.Unlock()
	return maps.Clone(env.writes)
}

// offer makes an object of the host, with a status.
func (env *shownEnv) offer(name string) {
	env.t.Helper()
	o := env.d.New()
	o.SetName(name)
	o.SetLabels(map[string]string{"offered-to": env.space.Name})
	o.Object["spec"] = map[string]any{"note": "1", "parts": []any{map[string]any{"of": "a"}, map[string]any{"of": "b", "unit": "t"}}}
	if err := env.atHost.Create(env.t.Context(), o); err != nil {
		env.t.Fatal(err)
	}
	env.t.Cleanup(func() { _ = env.atHost.Delete(context.WithoutCancel(env.t.Context()), o) })
	o.Object["status"] = map[string]any{"phase": "1", "internal": "x"}
	if err := env.atHost.Status().Update(env.t.Context(), o); err != nil {
		env.t.Fatal(err)
	}
}

// shows waits until the space shows an offer with a note, and nothing else than is declared.
func (env *shownEnv) shows(name, note string) (v *unstructured.Unstructured) {
	env.t.Helper()
	want := map[string]any{
		"note": note, "level": "low", "place": map[string]any{"zone": "a", "rack": "1"},
		"parts": []any{map[string]any{"of": "a", "unit": "kg"}, map[string]any{"of": "b", "unit": "kg"}},
	}
	testhost.Eventually(env.t, "see the offer "+name, func(ctx context.Context) error {
		v = env.d.New()
		if err := env.inSpace.Get(ctx, client.ObjectKey{Name: name}, v); err != nil {
			return err
		}
		diff := cmp.Diff(want, v.Object["spec"])
		diff += cmp.Diff(map[string]string{translate.LabelManagedBy: translate.ManagedBy}, v.GetLabels())
		if diff != "" || phaseOf(v) != "1" || len(v.GetAnnotations())+len(v.GetFinalizers())+len(v.GetOwnerReferences()) > 0 {
			return fmt.Errorf("it is %v: %s", v.Object, diff)
		}
		return nil
	})
	return v
}

// sleep has the space sleep, and starts its control plane without a syncer.
func (env *shownEnv) sleep() {
	env.t.Helper()
	env.idle(env.t)
	if err := errors.Join(env.kill(), env.stopPlane(env.t.Context()), env.startPlane(env.t.Context())); err != nil {
		env.t.Fatal(err)
	}
}

// C6, X2: a space that wakes writes none of the objects of the host that it shows already, and later each one once that changed.
func TestShownObjectsAreNotWrittenAgainAtAWake(t *testing.T) {
	t.Parallel()
	env := showsOffers(t, "shown-again")
	names := []string{"one", "two", "three"}
	for _, name := range names {
		env.offer(name)
	}
	env.begin(nil)
	versions := map[string]string{}
	for _, name := range names {
		versions[name] = env.shows(name, "1").GetResourceVersion()
	}
	env.sleep()
	env.count()
	env.idle(t)
	for _, name := range names {
		if v := env.shows(name, "1"); v.GetResourceVersion() != versions[name] {
			t.Errorf("%s has another version", name)
		}
	}
	if writes := env.written(); len(writes) > 0 {
		t.Errorf("the wake wrote %v", writes)
	}
	want := map[string]int{}
	for _, name := range names {
		o := env.d.New()
		if err := env.atHost.Get(t.Context(), client.ObjectKey{Name: name}, o); err != nil {
			t.Fatal(err)
		}
		setNote(nil, o, 2)
		if err := env.atHost.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		want[http.MethodPut+" /"+name] = 1
	}
	for _, name := range names {
		env.shows(name, "2")
	}
	env.idle(t)
	if diff := cmp.Diff(want, env.written()); diff != "" {
		t.Errorf("after a change of each on the host: %s", diff)
	}
}

// C6, S4: what a tenant changed of objects of the host while no syncer ran is undone at the next start, and only that is written.
func TestHostileChangesOfShownObjectsAreUndoneAtAWake(t *testing.T) {
	t.Parallel()
	env := showsOffers(t, "shown-changed")
	set := func(path string, value any) func(*unstructured.Unstructured) {
		return func(v *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(v.Object, value, strings.Split(path, ".")...); err != nil {
				panic(err) // the path is wrong
			}
		}
	}
	owner, err := env.virtual.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceDefault, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changes := map[string]func(*unstructured.Unstructured){
		"declared":         set("spec.note", "mine"),
		"in-declared":      set("spec.place.zone", "z"),
		"default":          set("spec.level", "high"),
		"default-below":    set("spec.place.rack", "9"),
		"undeclared":       set("spec.backend", "b"),
		"item":             set("spec.parts", []any{map[string]any{"of": "a"}}),
		"default-of-items": set("spec.parts", []any{map[string]any{"of": "a"}, map[string]any{"of": "b", "unit": "t"}}),
		"removed":          func(v *unstructured.Unstructured) { unstructured.RemoveNestedField(v.Object, "spec", "note") },
		"label":            set("metadata.labels.mine", "x"),
		"annotation":       set("metadata.annotations", map[string]any{"mine": "x"}),
		"finalizer":        func(v *unstructured.Unstructured) { v.SetFinalizers([]string{"example.com/mine"}) },
		"owner": func(v *unstructured.Unstructured) {
			v.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: owner.Name, UID: owner.UID}})
		},
		// A tenant may write what the syncer would, with the wrong content.
		"forged": func(v *unstructured.Unstructured) {
			v.Object["spec"] = runtime.DeepCopyJSON(map[string]any{"note": "2", "level": "low"})
		},
		"status":    nil,
		"deleted":   nil,
		"untouched": nil,
	}
	for name := range changes {
		env.offer(name)
	}
	env.begin(nil)
	for name := range changes {
		env.shows(name, "1")
	}
	env.sleep()
	for name, change := range changes {
		v := env.d.New()
		if err := env.inSpace.Get(t.Context(), client.ObjectKey{Name: name}, v); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case change != nil:
			change(v)
			err = env.inSpace.Update(t.Context(), v)
		case name == "status":
			v.Object["status"] = map[string]any{"phase": "mine"}
			err = env.inSpace.Status().Update(t.Context(), v)
		case name == "deleted":
			err = env.inSpace.Delete(t.Context(), v)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	env.count()
	want := map[string]int{}
	for name := range changes {
		env.shows(name, "1")
		want[http.MethodPut+" /"+name] = 1
	}
	env.idle(t)
	delete(want, http.MethodPut+" /untouched")
	delete(want, http.MethodPut+" /deleted")
	delete(want, http.MethodPut+" /status")
	want[http.MethodPost+" "], want[http.MethodPut+" /deleted/status"], want[http.MethodPut+" /status/status"] = 1, 1, 1
	if diff := cmp.Diff(want, env.written()); diff != "" {
		t.Error(diff)
	}
}
