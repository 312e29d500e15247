// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package crdshares

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/testcrd"
)

const gadgets = "gadgets.example.com"

// sharing returns shares with a definition that the host has.
func sharing(t *testing.T, spec v1alpha1.CRDShareSpec) *Shares {
	t.Helper()
	crd, err := definitions.Serve(testcrd.New("example.com", "Gadget", &apiextensionsv1.JSONSchemaProps{Type: "object"}), gadgets)
	if err != nil {
		t.Fatal(err)
	}
	s := New(klog.Background())
	s.listed[listOfShares], s.listed[listOfDefinitions] = true, true
	s.shares[gadgets] = &v1alpha1.CRDShare{ObjectMeta: metav1.ObjectMeta{Name: gadgets, Generation: 1}, Spec: spec}
	s.served[gadgets] = &served{forced: &definitions.Shared{CRD: crd, Forced: true, InRange: true}, optional: &definitions.Shared{CRD: crd, InRange: true}}
	return s
}

func space(name, tenant, labels string) *v1alpha1.Space {
	return &v1alpha1.Space{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.AnnotationTenantLabels: labels}},
		Spec:       v1alpha1.SpaceSpec{TenantName: tenant},
	}
}

// C2: a definition is shared with none, some, or all tenants, and never with a space that has none.
func TestASpaceHasWhatIsSharedWithItsTenant(t *testing.T) {
	t.Parallel()
	names := func(names ...string) v1alpha1.CRDShareTenants { return v1alpha1.CRDShareTenants{Names: names} }
	selector := func(s *metav1.LabelSelector) v1alpha1.CRDShareTenants { return v1alpha1.CRDShareTenants{Selector: s} }
	gold := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
	invalid := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Is"}}}
	for what, test := range map[string]struct {
		tenants []v1alpha1.CRDShareTenants
		want    []string
	}{
		"none":                {nil, nil},
		"a name":              {[]v1alpha1.CRDShareTenants{names("solar", "absent")}, []string{"solar", "solar-two"}},
		"a label":             {[]v1alpha1.CRDShareTenants{selector(gold)}, []string{"wind"}},
		"either":              {[]v1alpha1.CRDShareTenants{selector(gold), names("solar")}, []string{"solar", "solar-two", "wind"}},
		"all":                 {[]v1alpha1.CRDShareTenants{selector(&metav1.LabelSelector{})}, []string{"lunar", "solar", "solar-two", "wind"}},
		"what means nothing":  {[]v1alpha1.CRDShareTenants{selector(invalid)}, nil},
		"the empty name":      {[]v1alpha1.CRDShareTenants{names("")}, nil},
		"nothing and a label": {[]v1alpha1.CRDShareTenants{selector(invalid), selector(gold)}, []string{"wind"}},
	} {
		s := sharing(t, v1alpha1.CRDShareSpec{Mode: v1alpha1.OptionalCRD, Tenants: test.tenants})
		var got []string
		for _, object := range []*v1alpha1.Space{
			space("lunar", "lunar", "not JSON"), space("solar", "solar", `{"tier":"tin"}`), space("solar-two", "solar", ""),
			space("wind", "wind", `{"tier":"gold"}`), space("alone", "", `{"tier":"gold"}`),
		} {
			source := s.Source(object.Name)
			if set, _ := source.Watch(); len(set.Names()) > 0 {
				t.Errorf("%s: before its object is seen, %s has %q", what, object.Name, set.Names())
			}
			s.Observe(object)
			if set, _ := source.Watch(); set.InForce(gadgets, false).Shared {
				got = append(got, object.Name)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: it is shared with %q, want %q", what, got, test.want)
		}
	}
}

// C2, C3, L3: a change reaches a space at once, and however many spaces have a definition, it is in memory once.
func TestSpacesShareTheDefinitionInMemory(t *testing.T) {
	t.Parallel()
	s := sharing(t, v1alpha1.CRDShareSpec{Mode: v1alpha1.ForcedCRD, Tenants: []v1alpha1.CRDShareTenants{{Selector: &metav1.LabelSelector{}}}})
	for i := range 500 {
		name := fmt.Sprint("space-", i)
		source := s.Source(name)
		_, changed := source.Watch()
		s.Observe(space(name, name, ""))
		select {
		case <-changed:
		default:
			t.Fatalf("%s isn't told", name)
		}
		if set, _ := source.Watch(); set.Of(gadgets) != s.served[gadgets].forced {
			t.Fatalf("%s has a definition of its own", name)
		}
		s.Forget(name)
	}
	if len(s.spaces)+len(s.sources) > 0 {
		t.Errorf("of deleted spaces, %d and %d are kept", len(s.spaces), len(s.sources))
	}
}

// C2: a share says what is wrong with it.
func TestAShareNamesAnInvalidSelector(t *testing.T) {
	t.Parallel()
	s := sharing(t, v1alpha1.CRDShareSpec{Mode: v1alpha1.OptionalCRD, Tenants: []v1alpha1.CRDShareTenants{{Names: []string{"solar"}}}})
	if got := s.statuses()[gadgets]; got.Status != metav1.ConditionTrue || got.Reason != v1alpha1.ReasonShared {
		t.Errorf("the share is %+v", got)
	}
	s.shares[gadgets].Spec.Tenants = append(s.shares[gadgets].Spec.Tenants, v1alpha1.CRDShareTenants{
		Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Is"}}}})
	if got := s.statuses()[gadgets]; got.Status != metav1.ConditionFalse || got.Reason != v1alpha1.ReasonInvalidSpec || !strings.HasPrefix(got.Message, "spec.tenants[1].selector: ") {
		t.Errorf("the share is %+v", got)
	}
}

// C5: spaces keep a definition that can't be read for a while, unless the share is another one.
func TestADefinitionThatCantBeReadStays(t *testing.T) {
	t.Parallel()
	before := sharing(t, v1alpha1.CRDShareSpec{}).served[gadgets]
	before.share = "a"
	for what, test := range map[string]struct {
		reason, share string
		kept          bool
	}{
		"unavailable":                     {v1alpha1.ReasonDefinitionUnavailable, "a", true},
		"unavailable, and of a new share": {v1alpha1.ReasonDefinitionUnavailable, "b", false},
		"gone":                            {v1alpha1.ReasonDefinitionNotFound, "a", false},
		"changed to what can't be shared": {v1alpha1.ReasonDefinitionUnsupported, "a", false},
	} {
		got := (&served{share: test.share, reason: test.reason}).orAsBefore(before)
		if kept := got.optional != nil && got.forced == before.forced; kept != test.kept {
			t.Errorf("%s: it is kept: %v, want %v", what, kept, test.kept)
		}
	}
	if got := (&served{reason: v1alpha1.ReasonDefinitionUnavailable}).orAsBefore(nil); got.optional != nil {
		t.Error("a definition that was never read is there")
	}
}

// C3: while the platform doesn't know everything that is shared with a space, it doesn't say that nothing is.
func TestWhatIsSharedIsNotKnownUntilAllIsRead(t *testing.T) {
	t.Parallel()
	s := sharing(t, v1alpha1.CRDShareSpec{Mode: v1alpha1.ForcedCRD, Tenants: []v1alpha1.CRDShareTenants{{Names: []string{"solar"}}}})
	s.Observe(space("solar", "solar", ""))
	s.Observe(space("wind", "wind", ""))
	known := func(what, space string, want bool) {
		t.Helper()
		if _, known := s.setOf(space); known != want {
			t.Errorf("%s: what is shared with %s is known: %v, want %v", what, space, known, want)
		}
	}
	known("all is read", "solar", true)
	known("all is read", "absent", false)
	complete := s.served[gadgets]
	s.served[gadgets] = &served{reason: v1alpha1.ReasonDefinitionUnavailable}
	known("a definition can't be read", "solar", false)
	known("another tenant's definition can't be read", "wind", true)
	s.served[gadgets] = &served{reason: v1alpha1.ReasonDefinitionUnsupported}
	known("a definition can't be shared", "solar", true)
	s.served[gadgets] = complete
	s.listed[listOfDefinitions] = false
	known("the definitions aren't listed", "solar", false)
}

// C6: only what is known to be shared with mode Forced counts as forced, and nothing that isn't known yet counts as not forced.
func TestWhatIsForcedIsKnownOrNot(t *testing.T) {
	t.Parallel()
	solar := []v1alpha1.CRDShareTenants{{Names: []string{"solar"}}}
	for what, test := range map[string]struct {
		mode          v1alpha1.CRDShareMode
		change        func(*Shares)
		forced, known bool
		in            map[string][2]bool
	}{
		"forced":      {mode: v1alpha1.ForcedCRD, forced: true, known: true, in: map[string][2]bool{"solar": {true, true}, "wind": {false, true}, "absent": {false, false}}},
		"optional":    {mode: v1alpha1.OptionalCRD, known: true, in: map[string][2]bool{"solar": {false, true}, "absent": {false, true}}},
		"gone":        {mode: v1alpha1.ForcedCRD, change: func(s *Shares) { delete(s.shares, gadgets) }, known: true, in: map[string][2]bool{"solar": {false, true}}},
		"not listed":  {mode: v1alpha1.ForcedCRD, change: func(s *Shares) { s.listed[listOfShares] = false }, in: map[string][2]bool{"solar": {false, false}}},
		"new":         {mode: v1alpha1.ForcedCRD, change: func(s *Shares) { delete(s.served, gadgets) }, in: map[string][2]bool{"solar": {false, false}}},
		"another one": {mode: v1alpha1.ForcedCRD, change: func(s *Shares) { s.shares[gadgets].UID = "b" }, in: map[string][2]bool{"solar": {false, false}}},
		"never read": {mode: v1alpha1.ForcedCRD, change: func(s *Shares) {
			s.served[gadgets] = &served{reason: v1alpha1.ReasonDefinitionUnavailable}
		}, in: map[string][2]bool{"solar": {false, false}}},
		"can't be read now": {mode: v1alpha1.ForcedCRD, change: func(s *Shares) {
			s.served[gadgets].reason = v1alpha1.ReasonDefinitionUnavailable
		}, forced: true, known: true, in: map[string][2]bool{"solar": {true, true}}},
		"without a definition": {mode: v1alpha1.ForcedCRD, change: func(s *Shares) {
			s.served[gadgets] = &served{reason: v1alpha1.ReasonDefinitionNotFound}
		}, known: true, in: map[string][2]bool{"solar": {false, true}}},
	} {
		s := sharing(t, v1alpha1.CRDShareSpec{Mode: test.mode, Tenants: solar})
		s.Observe(space("solar", "solar", ""))
		s.Observe(space("wind", "wind", ""))
		if test.change != nil {
			test.change(s)
		}
		if forced, known := s.Forces(gadgets); forced != test.forced || known != test.known {
			t.Errorf("%s: forced: %v, known: %v", what, forced, known)
		}
		for space, want := range test.in {
			if forced, known := s.ForcedIn(space, gadgets); forced != want[0] || known != want[1] {
				t.Errorf("%s: in %s, forced: %v, known: %v", what, space, forced, known)
			}
		}
	}
}

// L3: a definition costs spaces no more than one of their own may.
func TestHostileSchemasAreNotShared(t *testing.T) {
	t.Parallel()
	expensive := testcrd.New("example.com", "Gadget", &apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": {Type: "string", Pattern: strings.Repeat("x{1000}", 50)}},
	})
	if err := checkSchemas(expensive); !errors.Is(err, definitions.ErrUnsupported) || !strings.Contains(err.Error(), "pattern") {
		t.Errorf("the schema is accepted, or not explained: %v", err)
	}
	if err := checkSchemas(testcrd.New("example.com", "Gadget", &apiextensionsv1.JSONSchemaProps{Type: "object"})); err != nil {
		t.Error(err)
	}
}

// C5: a conversion webhook moves, or gets another CA. What spaces have of the definition stays in memory once.
func TestAWebhookThatMovesLeavesTheDefinition(t *testing.T) {
	t.Parallel()
	offered := func(url string) *served {
		host := testcrd.New("example.com", "Gadget", &apiextensionsv1.JSONSchemaProps{Type: "object"})
		host.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &url}},
		}
		crd, err := definitions.Serve(host, gadgets)
		if err != nil {
			t.Fatal(err)
		}
		s := &served{share: "a"}
		s.offer(crd, definitions.WebhookOf(host))
		return s
	}
	before := offered("https://hook")
	if same := offered("https://hook").orAsBefore(before); same.optional != before.optional || same.forced != before.forced {
		t.Error("the same definition is in memory once more")
	}
	moved := offered("https://moved").orAsBefore(before)
	for what, is := range map[string]*definitions.Shared{"optional": moved.optional, "forced": moved.forced} {
		if is.CRD != before.optional.CRD || *is.Webhook.Client().URL != "https://moved" || is.Forced != (what == "forced") {
			t.Errorf("%s: spaces have %+v, want the same definition with the new webhook", what, is)
		}
	}
}
