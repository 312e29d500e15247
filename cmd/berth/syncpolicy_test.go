// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer/declaration"
)

func syncedDefinition(plural, kind string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + ".example.com"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: scope,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"host": text, "secretName": text}},
			}},
		}}},
	}}
}

func newSync(name string, direction v1alpha1.ResourceSyncDirection, paths ...string) *v1alpha1.ResourceSync {
	of := &v1alpha1.ResourceSync{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ResourceSyncSpec{Direction: direction, Version: "v1"}}
	for _, path := range paths {
		of.Spec.Fields = append(of.Spec.Fields, v1alpha1.SyncedField{Path: path})
	}
	return of
}

// printedObjects reads what the command prints.
func printedObjects(t *testing.T, text string) (objects []*unstructured.Unstructured) {
	t.Helper()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		o := &unstructured.Unstructured{}
		if err := errors.Join(err, yaml.UnmarshalStrict(document, &o.Object)); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
}

// The host takes what 'berth sync-policy' prints: after that, the policies are those that Berth checks for, and the chart's ClusterRoles
// have the rights.
func TestTheHostTakesWhatSyncPolicyPrints(t *testing.T) {
	h := use(t)
	notes, kinds := syncedDefinition("notes", "Note", apiextensionsv1.NamespaceScoped), syncedDefinition("notekinds", "NoteKind", apiextensionsv1.ClusterScoped)
	toHost := newSync(notes.Name, v1alpha1.SyncToHost, "spec.host", "spec.secretName")
	toHost.Spec.Fields[0].Rule = "self.endsWith('.example.com') // of the tenant\n && self != ''"
	for _, o := range []client.Object{notes, kinds, toHost, newSync(kinds.Name, v1alpha1.SyncFromHost, "spec.host")} {
		h.forget(t, o)
		if err := h.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	names := func(objects []*unstructured.Unstructured) (all []string) {
		for _, o := range objects {
			all = append(all, o.GetKind()+" "+o.GetName())
		}
		return all
	}
	watch := []string{"ClusterRole berth-platform-berth-space-dedicated-reader-notekinds.example.com", "ClusterRole berth-platform-berth-syncs-notekinds.example.com"}
	all := []string{
		watch[0], watch[1], "ValidatingAdmissionPolicy berth-sync-notes.example.com", "ValidatingAdmissionPolicyBinding berth-sync-notes.example.com",
		"ClusterRole berth-platform-berth-space-notes.example.com", "ClusterRole berth-platform-berth-space-dedicated-notes.example.com",
		"ClusterRole berth-platform-berth-syncs-notes.example.com",
	}
	printed := printedObjects(t, must(t, "sync-policy"))
	if diff := cmp.Diff(all, names(printed)); diff != "" {
		t.Errorf("printed, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(watch, names(printedObjects(t, must(t, "sync-policy", kinds.Name)))); diff != "" {
		t.Errorf("for the direction FromHost, -want +got:\n%s", diff)
	}
	for _, o := range printed {
		h.forget(t, o.DeepCopy())
		if _, has := o.Object["status"]; has {
			t.Errorf("%s has a status", o.GetName())
		}
		if err := h.Create(t.Context(), o); err != nil {
			t.Errorf("the host refuses %s: %v", o.GetName(), err)
		}
	}
	d, errs := declaration.Compile(toHost, notes)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	if err := isolation.CheckSync(t.Context(), h, d); err != nil {
		t.Error(err)
	}
	// The chart's ClusterRoles select these.
	for role, want := range map[string][]rbacv1.PolicyRule{
		"berth-platform-berth-space": {isolation.SyncRule(d)},
		"berth-platform-berth-syncs": {isolation.SyncWatchRule(d), {APIGroups: []string{"example.com"}, Resources: []string{"notekinds"}, Verbs: []string{"get", "list", "watch"}}},
	} {
		var have rbacv1.ClusterRoleList
		if err := h.List(t.Context(), &have, client.MatchingLabels{isolation.LabelAggregateTo: role}); err != nil {
			t.Fatal(err)
		}
		var rules []rbacv1.PolicyRule
		for _, r := range have.Items {
			rules = append(rules, r.Rules...)
		}
		slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int { return strings.Compare(b.Resources[0], a.Resources[0]) })
		if diff := cmp.Diff(want, rules); diff != "" {
			t.Errorf("rules for %s, -want +got:\n%s", role, diff)
		}
	}
	if out := must(t, "sync-policy", notes.Name, "--space-role=tools-berth-space"); !strings.Contains(out, "name: tools-berth-space-notes.example.com\n") ||
		!strings.Contains(out, "berth.dev/aggregate-to: tools-berth-syncs\n") {
		t.Errorf("of another release:\n%s", out)
	}
}

// Errors name the fields of ResourceSyncs, and what is valid is printed.
func TestSyncPolicySaysWhatIsInvalid(t *testing.T) {
	h := use(t)
	memos := syncedDefinition("memos", "Memo", apiextensionsv1.NamespaceScoped)
	invalid := newSync("others.example.com", v1alpha1.SyncToHost, "spec.missing", "spec.host")
	invalid.Spec.Fields[1].Rule = "self =="
	for _, o := range []client.Object{
		memos, syncedDefinition("others", "Other", apiextensionsv1.NamespaceScoped), newSync(memos.Name, v1alpha1.SyncToHost, "spec.host"), invalid, newSync("gone.example.com", v1alpha1.SyncToHost, "spec.host"),
	} {
		h.forget(t, o)
		if err := h.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	out, _, err := berth(t, "sync-policy")
	if err == nil || strings.Count(out, "---\n") != 5 || strings.Contains(out, "others.example.com") {
		t.Errorf("got %v and:\n%s", err, out)
	}
	for _, want := range []string{
		`resourcesync others.example.com: spec.fields[0].path: Invalid value: "spec.missing"`, "resourcesync others.example.com: spec.fields[1].rule", "resourcesync gone.example.com: the host has no CustomResourceDefinition",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for args, want := range map[string]string{"sync-policy none.example.com": `"none.example.com" not found`, "sync-policy --space-role=x": "--space-role=x: the name of the ClusterRole ends in -space"} {
		if _, _, err := berth(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}
