// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package definitions_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/testcrd"
)

func hostDefinition(kind string) *apiextensionsv1.CustomResourceDefinition {
	crd := testcrd.New("example.com", kind, &apiextensionsv1.JSONSchemaProps{Type: "object"})
	crd.UID, crd.ResourceVersion = types.UID("uid-of-"+kind), "7"
	return crd
}

func TestServeLeavesOutWhatConcernsTheHost(t *testing.T) {
	t.Parallel()
	host := hostDefinition("Widget")
	host.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm"}
	host.Annotations = map[string]string{
		corev1.LastAppliedConfigAnnotation: "{}", "meta.helm.sh/release-name": "host", definitions.AnnotationShare: "forged",
		apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, an experiment",
	}
	host.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
	host.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "admin"}}
	served, err := definitions.Serve(host, "share")
	if err != nil {
		t.Fatal(err)
	}
	if !definitions.IsShared(served) || definitions.IsShared(host) {
		t.Errorf("UIDs: %s is shared, and %s is not", served.UID, host.UID)
	}
	if served.Labels != nil || served.OwnerReferences != nil || served.ManagedFields != nil || served.ResourceVersion == host.ResourceVersion {
		t.Errorf("it has the host's metadata: %+v", served.ObjectMeta)
	}
	if a := served.Annotations; len(a) != 2 || a[apiextensionsv1.KubeAPIApprovedAnnotation] != "unapproved, an experiment" || a[definitions.AnnotationShare] != "share" {
		t.Errorf("its annotations are %v", a)
	}
}

// TestOnlyWhatSpacesServeIsAnotherVersion changes a definition on the host: spaces may switch only if they serve it in another way.
func TestOnlyWhatSpacesServeIsAnotherVersion(t *testing.T) {
	t.Parallel()
	before, err := definitions.Serve(hostDefinition("Widget"), "share")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		same   bool
		change func(*apiextensionsv1.CustomResourceDefinition)
	}{
		"a label":         {true, func(c *apiextensionsv1.CustomResourceDefinition) { c.Labels = map[string]string{"a": "b"} }},
		"an annotation":   {true, func(c *apiextensionsv1.CustomResourceDefinition) { c.Annotations = map[string]string{"a": "b"} }},
		"another version": {true, func(c *apiextensionsv1.CustomResourceDefinition) { c.ResourceVersion = "8" }},
		"stored versions": {true, func(c *apiextensionsv1.CustomResourceDefinition) { c.Status.StoredVersions = []string{"v0", "v1"} }},
		"a condition": {true, func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Status.Conditions = append(c.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.NonStructuralSchema})
		}},
		"another definition": {false, func(c *apiextensionsv1.CustomResourceDefinition) { c.UID = "other" }},
		"another schema": {false, func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Spec.Versions[0].Schema.OpenAPIV3Schema.Title = "t"
		}},
		"accepted names": {false, func(c *apiextensionsv1.CustomResourceDefinition) { c.Status.AcceptedNames.ShortNames = []string{"w"} }},
	} {
		host := hostDefinition("Widget")
		test.change(host)
		after, err := definitions.Serve(host, "share")
		if err != nil {
			t.Fatal(err)
		}
		one := definitions.NewSet("", &definitions.Shared{CRD: before, InRange: true})
		other := definitions.NewSet("", &definitions.Shared{CRD: after, InRange: true})
		if same := one.Version() == other.Version(); same != test.same || definitions.SameContent(before, after) != test.same {
			t.Errorf("%s: it is the same to spaces: %v, want %v", name, same, test.same)
		}
	}
}

func TestServeRefusesWhatSpacesCantServe(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"a conversion webhook that is nowhere": func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter}
		},
		"no structural schema": func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.PreserveUnknownFields = true },
		"not established":      func(c *apiextensionsv1.CustomResourceDefinition) { c.Status.Conditions = nil },
		"being deleted":        func(c *apiextensionsv1.CustomResourceDefinition) { c.DeletionTimestamp = &metav1.Time{} },
	} {
		crd := hostDefinition("Widget")
		change(crd)
		if _, err := definitions.Serve(crd, "share"); !errors.Is(err, definitions.ErrUnsupported) {
			t.Errorf("%s: %v, want that it can't be shared", name, err)
		}
	}
}

func TestASetHasAVersionForWhatItSays(t *testing.T) {
	t.Parallel()
	served := func(kind string) *apiextensionsv1.CustomResourceDefinition {
		s, err := definitions.Serve(hostDefinition(kind), "share")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := served("Apple"), served("Banana")
	changed := a.DeepCopy()
	changed.ResourceVersion = "08"
	if v := definitions.NewSet("", &definitions.Shared{CRD: a}).Version(); v != "" {
		t.Errorf("a set of a definition that is not in range has the version %s", v)
	}
	set := definitions.NewSet("", &definitions.Shared{CRD: b, InRange: true}, &definitions.Shared{CRD: a, Forced: true})
	if names := set.Names(); !slices.Equal(names, []string{"apples.example.com", "bananas.example.com"}) {
		t.Errorf("the names are %v", names)
	}
	seen := map[string]string{}
	for name, s := range map[string]*definitions.Set{
		"two":         set,
		"one":         definitions.NewSet("", &definitions.Shared{CRD: a, Forced: true}),
		"in range":    definitions.NewSet("", &definitions.Shared{CRD: a, InRange: true}),
		"changed":     definitions.NewSet("", &definitions.Shared{CRD: changed, InRange: true}),
		"with policy": definitions.NewSet(definitions.SystemCRDFirst, &definitions.Shared{CRD: a, InRange: true}),
		"nothing":     nil,
	} {
		if other, ok := seen[s.Version()]; ok {
			t.Errorf("%s and %s have the same version", name, other)
		}
		seen[s.Version()] = name
	}
	if again := definitions.NewSet("", &definitions.Shared{CRD: a.DeepCopy(), Forced: true}, &definitions.Shared{CRD: b, InRange: true}); again.Version() != set.Version() {
		t.Error("the version depends on the order of shares")
	}
}

func TestASourceReportsChanges(t *testing.T) {
	t.Parallel()
	crd, err := definitions.Serve(hostDefinition("Widget"), "share")
	if err != nil {
		t.Fatal(err)
	}
	source := &definitions.Source{}
	none, changed := source.Watch()
	if none.Of(crd.Name) != nil || none.InForce(crd.Name, true).Shared {
		t.Error("a source that nobody has set shares something")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := source.Await(ended); err == nil {
		t.Error("a source that nobody has set is known")
	}
	source.Set(nil)
	if err := source.Await(t.Context()); err != nil {
		t.Errorf("a source that says that nothing is shared isn't known: %v", err)
	}
	select {
	case <-changed:
	default:
		t.Error("it is not reported that the source is known")
	}
	_, changed = source.Watch()
	source.Set(definitions.NewSet(""))
	select {
	case <-changed:
		t.Error("a set that says the same is reported")
	default:
	}
	source.Set(definitions.NewSet("", &definitions.Shared{CRD: crd, InRange: true}))
	select {
	case <-changed:
	default:
		t.Error("a change is not reported")
	}
	if set, _ := source.Watch(); set.Of(crd.Name) == nil || set.InForce(crd.Name, true).Shared || !set.InForce(crd.Name, false).Shared {
		t.Errorf("the source has %+v", set)
	}
}

func TestASetReachesAnotherProcess(t *testing.T) {
	t.Parallel()
	var all []*definitions.Shared
	for _, kind := range []string{"Apple", "Banana"} {
		crd, err := definitions.Serve(hostDefinition(kind), "share")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &definitions.Shared{CRD: crd, InRange: true, Forced: kind == "Apple"})
	}
	for _, set := range []*definitions.Set{nil, definitions.NewSet("", all...)} {
		data, err := definitions.Encode(set)
		if err != nil {
			t.Fatal(err)
		}
		got, err := definitions.Decode(data)
		if err != nil || got.Version() != set.Version() || !slices.Equal(got.Names(), set.Names()) {
			t.Errorf("%q arrive as %q (%v)", set.Names(), got.Names(), err)
		}
	}
	for what, data := range map[string]string{"no JSON": "[", "nothing": "[{}]", "a definition that isn't shared": `[{"crd": {"metadata": {"uid": "5a"}}}]`} {
		if set, err := definitions.Decode([]byte(data)); err == nil {
			t.Errorf("%s is decoded as %q", what, set.Names())
		}
	}
}

// TestSetsSayTheSameOfANameIfItsContentAndModeAre has the platform make sets anew.
func TestSetsSayTheSameOfANameIfItsContentAndModeAre(t *testing.T) {
	t.Parallel()
	crd, err := definitions.Serve(hostDefinition("Widget"), "share")
	if err != nil {
		t.Fatal(err)
	}
	other := crd.DeepCopy()
	other.ResourceVersion = "08"
	set := definitions.NewSet("", &definitions.Shared{CRD: crd, InRange: true})
	for name, test := range map[string]struct {
		same   bool
		shared *definitions.Shared
	}{
		"a copy":         {true, &definitions.Shared{CRD: crd.DeepCopy(), InRange: true}},
		"forced":         {false, &definitions.Shared{CRD: crd, InRange: true, Forced: true}},
		"other content":  {false, &definitions.Shared{CRD: other, InRange: true}},
		"no longer used": {false, &definitions.Shared{CRD: crd}},
	} {
		if got := set.SameOf(crd.Name, definitions.NewSet("", test.shared)); got != test.same {
			t.Errorf("%s: the sets say the same: %t, want %t", name, got, test.same)
		}
	}
}

func TestAPolicyReplacesThatOfASet(t *testing.T) {
	t.Parallel()
	crd, err := definitions.Serve(hostDefinition("Widget"), "share")
	if err != nil {
		t.Fatal(err)
	}
	set := definitions.NewSet("", &definitions.Shared{CRD: crd, InRange: true})
	if set.WithPolicy("") != set || set.WithPolicy(definitions.LocalCRDFirst) != set {
		t.Error("the same policy makes another set")
	}
	system := set.WithPolicy(definitions.SystemCRDFirst)
	if system.Version() == set.Version() || !system.InForce(crd.Name, true).Shared || set.InForce(crd.Name, true).Shared {
		t.Errorf("with another policy, the set is %+v", system)
	}
	if set.SameOf(crd.Name, system) || set.SameOf(crd.Name, nil) || !set.SameOf("others.example.com", system) {
		t.Error("sets of two policies differ in what they say of a shared definition, and of no other")
	}
	if back := system.WithPolicy(""); back.Version() != set.Version() {
		t.Errorf("without a policy, the set is %+v", back)
	}
}
