// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
)

// named is a definition of a kind, with a label.
func named(kind, label string) *apiextensionsv1.CustomResourceDefinition {
	crd := localWidgets()
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: strings.ToLower(kind) + "s", Kind: kind}
	crd.Name = crd.Spec.Names.Plural + ".example.com"
	crd.Labels = map[string]string{"of": label}
	return crd
}

// TestListsAndWatchesHaveSharedDefinitionsInPlace reads definitions in pages, by selectors, and as events (C2, U6).
func TestListsAndWatchesHaveSharedDefinitionsInPlace(t *testing.T) {
	t.Parallel()
	hostConfig := config(t, "listed-host")
	hostConfig.Access = nil
	host := newTenantOf(t, start(t, hostConfig))
	var all []*definitions.Shared
	for _, kind := range []string{"Bee", "Dog", "Eel"} {
		served, err := definitions.Serve(host.define(t, named(kind, "platform")), "the-share")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &definitions.Shared{CRD: served, InRange: true})
	}
	c := config(t, "listed")
	c.Definitions = &definitions.Source{}
	tenant := newTenantOf(t, start(t, c))
	for _, kind := range []string{"Ant", "Cow", "Eel", "Fox"} {
		tenant.define(t, named(kind, "tenant"))
	}
	api := tenant.crds.ApiextensionsV1().CustomResourceDefinitions()
	before, err := api.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changes, err := api.Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	c.Definitions.Set(definitions.NewSet(definitions.LocalCRDFirst, all...))
	checkEvents(t, changes, "MODIFIED bees", "MODIFIED dogs")

	for name, test := range map[string]struct {
		options metav1.ListOptions
		want    string
	}{
		"all":                      {metav1.ListOptions{}, "ants bees cows dogs eels/tenant foxs"},
		"pages of one":             {metav1.ListOptions{Limit: 1}, "ants bees cows dogs eels/tenant foxs"},
		"pages of two":             {metav1.ListOptions{Limit: 2}, "ants bees cows dogs eels/tenant foxs"},
		"the platform's, by label": {metav1.ListOptions{LabelSelector: "!of"}, "bees dogs"},
		"by a label of the host":   {metav1.ListOptions{LabelSelector: "of=platform"}, ""},
		"the tenant's, by label":   {metav1.ListOptions{LabelSelector: "of=tenant"}, "ants cows eels/tenant foxs"},
		"a shared one, by name":    {metav1.ListOptions{FieldSelector: "metadata.name=dogs.example.com"}, "dogs"},
		"a local one, by name":     {metav1.ListOptions{FieldSelector: "metadata.name=foxs.example.com"}, "foxs"},
	} {
		var names []string
		for {
			list, err := api.List(t.Context(), test.options)
			if err != nil {
				t.Fatal(name, err)
			}
			if limit := test.options.Limit; limit > 0 && int64(len(list.Items)) > limit {
				t.Errorf("%s: a page has %d", name, len(list.Items))
			}
			for i := range list.Items {
				names = append(names, describe(&list.Items[i]))
			}
			if test.options.Continue = list.Continue; list.Continue == "" {
				break
			}
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}

	initial, err := api.Watch(t.Context(), metav1.ListOptions{}) // reports first what there is
	if err != nil {
		t.Fatal(err)
	}
	defer initial.Stop()
	checkEvents(t, initial, "ADDED bees", "ADDED dogs", "ADDED ants", "ADDED cows", "ADDED eels/tenant", "ADDED foxs")

	var again []*definitions.Shared // as the platform makes them for another set
	for _, one := range all[1:] {
		again = append(again, &definitions.Shared{CRD: one.CRD, InRange: one.InRange})
	}
	c.Definitions.Set(definitions.NewSet(definitions.SystemCRDFirst, again...))
	checkEvents(t, changes, "DELETED bees", "MODIFIED eels")
	c.Definitions.Set(nil)
	checkEvents(t, changes, "DELETED dogs", "MODIFIED eels/tenant")
}

// describe is the plural of a definition, and whether it is the tenant's of one that both have.
func describe(crd *apiextensionsv1.CustomResourceDefinition) string {
	if crd.Spec.Names.Plural == "eels" && !definitions.IsShared(crd) {
		return "eels/tenant"
	}
	return crd.Spec.Names.Plural
}

// checkEvents waits until a watch has reported each of some changes, and no other one of a shared definition.
func checkEvents(t *testing.T, w watch.Interface, want ...string) {
	t.Helper()
	limit := time.After(testTimeout)
	for len(want) > 0 {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				t.Fatalf("the watch ended, want %v", want)
			}
			crd, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition)
			if !ok || event.Type == watch.Error {
				t.Fatalf("the watch reports %v, want %v", event, want)
			}
			got := string(event.Type) + " " + describe(crd)
			if i := slices.Index(want, got); i >= 0 {
				want = slices.Delete(want, i, i+1)
			} else if definitions.IsShared(crd) {
				t.Errorf("the watch reports %s, want %v", got, want)
			}
		case <-limit:
			t.Fatalf("the watch reports nothing, want %v", want)
		}
	}
}

// TestSharedDefinitionsCountInTheSpacesAccount shares a large definition, reads it within the space's bounds, and ends the share (L3).
func TestSharedDefinitionsCountInTheSpacesAccount(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	large := hostWidgets()
	large.Spec.Versions[0].Schema.OpenAPIV3Schema.Description = strings.Repeat("x", size)
	optional := &definitions.Shared{CRD: shared(t, large), InRange: true}
	c := config(t, "counting")
	c.Definitions, c.Account = &definitions.Source{}, bounds.NewAccount(bounds.Limits{bounds.MemoryBytes: 8 << 20, bounds.CachedBytes: 8 << 20})
	tenant := newTenantOf(t, start(t, c))
	use := func() int64 { return c.Account.Used(bounds.CachedBytes) }
	before := use()
	for range 3 {
		c.Definitions.Set(definitions.NewSet("", optional))
		tenant.waitForSize(t, true)
		eventually(t, func() error { // the handler of before may have answered
			if grown := use() - before; grown < size {
				return fmt.Errorf("the account has %d bytes more, want at least %d", grown, size)
			}
			return nil
		})
		for range 40 { // of which the account's memory holds a few at once
			if _, err := tenant.crds.ApiextensionsV1().CustomResourceDefinitions().List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Fatal(err)
			}
			tenant.crd(t)
		}
		c.Definitions.Set(nil)
		eventually(t, func() error {
			if grown := use() - before; grown >= size {
				return fmt.Errorf("the account has %d bytes more after the share ended", grown)
			}
			return nil
		})
	}
}
