// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package declaration_test

import (
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/declaration"
)

// C6: another process syncs in the same way.
func TestAnotherProcessHasTheSameDeclarations(t *testing.T) {
	t.Parallel()
	shown := spec(t)
	shown.Direction, shown.Fields = v1alpha1.SyncFromHost, []v1alpha1.SyncedField{{Path: "spec.dnsNames"}}
	shown.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	all := []*declaration.Declaration{compiled(t, spec(t)), compiled(t, shown)}
	update := &declaration.Update{Declarations: all, Keep: []string{"kept.example.com"}}
	data, err := update.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := declaration.DecodeUpdate(data)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Keep, update.Keep) || got.Digest() != update.Digest() || len(got.Declarations) != len(all) {
		t.Fatalf("the other process has %+v", got)
	}
	for i, d := range got.Declarations {
		if !d.SameAs(all[i]) || d.Selector.String() != all[i].Selector.String() || d.GVR != all[i].GVR || d.Max != all[i].Max || d.HasStatus != all[i].HasStatus {
			t.Errorf("the other process has %+v, want %+v", d, all[i])
		}
	}
	other, errs := declaration.Compile(&v1alpha1.ResourceSync{ObjectMeta: metav1.ObjectMeta{Name: "papers.example.com", UID: "another"}, Spec: spec(t)}, definition(t, apiextensionsv1.NamespaceScoped))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	for what, u := range map[string]*declaration.Update{
		"another ResourceSync of the name": {Declarations: []*declaration.Declaration{other, all[1]}, Keep: update.Keep},
		"one less":                         {Declarations: all[:1], Keep: update.Keep},
		"nothing to keep":                  {Declarations: all},
	} {
		if u.Digest() == update.Digest() {
			t.Errorf("%s: the digest is the same", what)
		}
	}
}
