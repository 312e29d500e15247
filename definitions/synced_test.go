// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package definitions_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/definitions"
)

// withVersions is a definition of the host with several versions: v1 is synced, v2 is stored, and v3 is not served.
func withVersions(kind string) *apiextensionsv1.CustomResourceDefinition {
	crd := hostDefinition(kind)
	v1 := crd.Spec.Versions[0]
	v1.Storage = false
	v2, v3 := *v1.DeepCopy(), *v1.DeepCopy()
	v2.Name, v2.Storage = "v2", true
	v3.Name, v3.Served = "v3", false
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{v2, v1, v3}
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter} // of no use for one version
	return crd
}

func synced(t *testing.T, kind string) *definitions.Shared {
	t.Helper()
	shared, err := definitions.ForSync(withVersions(kind), "v1")
	if err != nil {
		t.Fatal(err)
	}
	return shared
}

// TestASyncedDefinitionHasTheSyncedVersion serves only that one, and can read the others (C5).
func TestASyncedDefinitionHasTheSyncedVersion(t *testing.T) {
	t.Parallel()
	shared := synced(t, "Widget")
	if !shared.Forced || !shared.Synced || !definitions.IsShared(shared.CRD) || shared.Webhook != nil || len(shared.CRD.Annotations) > 0 {
		t.Errorf("it is %+v, %+v", shared, shared.CRD.ObjectMeta)
	}
	if c := shared.CRD.Spec.Conversion; c.Strategy != apiextensionsv1.NoneConverter || c.Webhook != nil {
		t.Errorf("it converts by %+v", c)
	}
	served := map[string]bool{}
	for _, v := range shared.CRD.Spec.Versions {
		served[v.Name] = v.Served
		if v.Served != v.Storage {
			t.Errorf("%s: served %t, stored %t", v.Name, v.Served, v.Storage)
		}
	}
	if len(served) != 3 || !served["v1"] || served["v2"] || served["v3"] {
		t.Errorf("it serves %v", served)
	}
}

func TestADefinitionThatCantBeSynced(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		version string
		change  func(*apiextensionsv1.CustomResourceDefinition)
		want    error
	}{
		"no such version": {"v4", func(*apiextensionsv1.CustomResourceDefinition) {}, definitions.ErrNotServed},
		"not served":      {"v3", func(*apiextensionsv1.CustomResourceDefinition) {}, definitions.ErrNotServed},
	} {
		host := withVersions("Widget")
		test.change(host)
		if _, err := definitions.ForSync(host, test.version); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// A platform must start right after the host was restored, or its definitions were installed.
func TestASyncedDefinitionIsServedBeforeTheHostDoes(t *testing.T) {
	t.Parallel()
	host, now := withVersions("Widget"), metav1.Now()
	host.Status, host.DeletionTimestamp = apiextensionsv1.CustomResourceDefinitionStatus{}, &now
	early, err := definitions.ForSync(host, "v1")
	if err != nil {
		t.Fatal(err)
	}
	later := synced(t, "Widget")
	if diff := cmp.Diff(later.CRD, early.CRD); diff != "" {
		t.Errorf("it isn't as when the host serves it (-want +got):\n%s", diff)
	}
	if !apiextensionshelpers.IsCRDConditionTrue(early.CRD, apiextensionsv1.Established) {
		t.Errorf("its conditions are %v", early.CRD.Status.Conditions)
	}
}

// TestASetHasWhatIsSynced lays synced definitions over those of CRDShares. A share of the same name is used if it
// serves the version, and is forced then. All spaces have the same pointer of it.
func TestASetHasWhatIsSynced(t *testing.T) {
	t.Parallel()
	widgets, gadgets := synced(t, "Widget"), synced(t, "Gadget")
	name := widgets.CRD.Name
	served := func(change func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
		host := withVersions("Widget")
		host.Spec.Conversion = nil
		change(host)
		crd, err := definitions.Serve(host, "the-share")
		if err != nil {
			t.Fatal(err)
		}
		return crd
	}
	all := served(func(*apiextensionsv1.CustomResourceDefinition) {})
	without := served(func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Versions[1].Served = false })
	for what, test := range map[string]struct {
		share *definitions.Shared
		want  *apiextensionsv1.CustomResourceDefinition
	}{
		"no share":                    {nil, widgets.CRD},
		"a share":                     {&definitions.Shared{CRD: all, InRange: true}, all},
		"a forced share":              {&definitions.Shared{CRD: all, InRange: true, Forced: true}, all},
		"a share without the version": {&definitions.Shared{CRD: without, InRange: true, Forced: true}, widgets.CRD},
		"a share with other tenants":  {&definitions.Shared{CRD: all}, widgets.CRD},
	} {
		for _, policy := range []definitions.Policy{"", definitions.NeverUseSystemCRDUnlessForced} {
			var shares []*definitions.Shared
			if test.share != nil {
				shares = append(shares, test.share)
			}
			set := definitions.NewSet(policy, shares...).WithSynced(widgets, gadgets)
			match := set.InForce(name, true)
			if match.CRD != test.want || match.Reason != definitions.Forced || !match.Synced || !strings.Contains(match.Explain(name, true), "syncs") {
				t.Errorf("%s, policy %q: %s is in force: %s", what, policy, match.Reason, match.Explain(name, true))
			}
			if set.HasShares() != (test.want != widgets.CRD) {
				t.Errorf("%s: that it has shares is %t", what, set.HasShares())
			}
			if forced := set.Forced("example.com"); !slices.Equal(forced, []string{gadgets.CRD.Name, name}) {
				t.Errorf("%s: forced in the group are %v", what, forced)
			}
			if other := definitions.NewSet("", shares...).WithSynced(widgets); other.Of(name) != set.Of(name) {
				t.Errorf("%s: another space has another copy", what)
			}
			if policy != "" && set.Policy() != policy {
				t.Errorf("%s: the policy is %s", what, set.Policy())
			}
		}
	}
	var none *definitions.Set
	if none.WithSynced() != nil || none.HasShares() || none.WithSynced(widgets).Version() == "" {
		t.Error("without shares, a set has what is synced")
	}
}

// TestASourceHasWhatIsSynced has it before the shares are known, and follows these.
func TestASourceHasWhatIsSynced(t *testing.T) {
	t.Parallel()
	widgets := synced(t, "Widget")
	var none *definitions.Source
	if none.WithSynced() != nil {
		t.Error("where nothing is synced, there is a source")
	}
	alone := none.WithSynced(widgets)
	if set, _ := alone.Watch(); alone.Await(t.Context()) != nil || set.Of(widgets.CRD.Name) != widgets {
		t.Errorf("without shares, it has %v", set.Names())
	}
	source := &definitions.Source{}
	with := source.WithSynced(widgets)
	first, changed := with.Watch()
	if again, _ := with.Watch(); first.Of(widgets.CRD.Name) != widgets || again != first {
		t.Errorf("before the shares are known, it has %v", first.Names())
	}
	gadget, err := definitions.Serve(hostDefinition("Gadget"), "share")
	if err != nil {
		t.Fatal(err)
	}
	source.Set(definitions.NewSet("", &definitions.Shared{CRD: gadget, InRange: true}))
	select {
	case <-changed:
	default:
		t.Error("a change of the shares is not reported")
	}
	if set, _ := with.Watch(); with.Await(t.Context()) != nil || !slices.Equal(set.Names(), []string{gadget.Name, widgets.CRD.Name}) {
		t.Errorf("it has %v", set.Names())
	}
	with.Set(nil)
	if set, _ := source.Watch(); set != nil {
		t.Errorf("the shares are %v", set.Names())
	}
}
