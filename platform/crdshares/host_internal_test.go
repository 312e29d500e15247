// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package crdshares

import (
	"context"
	"fmt"
	"os"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/internal/testcrd"
	"github.com/berth-dev/berth/internal/testhost"
)

// theHost is the host of all tests.
var theHost *testhost.Host //nolint:gochecknoglobals // set once, before the tests

func TestMain(m *testing.M) {
	os.Exit(testhost.Main(m, func() (*testhost.Host, error) {
		host, err := testhost.Start()
		theHost = host
		return host, err
	}))
}

// C5: a label, an annotation, or the status of a definition on the host moves no space. Another schema does.
func TestOnlyTheContentOfADefinitionSwitchesSpaces(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, metav1.AddMetaToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	host, err := client.NewWithWatch(theHost.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	crd := testcrd.New("example.com", "Gadget", &apiextensionsv1.JSONSchemaProps{Type: "object"})
	if err := host.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	s := New(klog.Background())
	s.listed[listOfShares] = true
	s.shares[gadgets] = &v1alpha1.CRDShare{ObjectMeta: metav1.ObjectMeta{Name: gadgets, UID: "a"}, Spec: v1alpha1.CRDShareSpec{
		Mode: v1alpha1.OptionalCRD, Tenants: []v1alpha1.CRDShareTenants{{Selector: &metav1.LabelSelector{}}},
	}, Status: v1alpha1.CRDShareStatus{StoredVersions: []string{"v1"}}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	for what, run := range map[string]func(){
		"watch": func() { s.watchDefinitions(ctx, host) }, "follow": func() { s.follow(ctx, host, func(context.Context) {}) },
	} {
		go safego.Run(what, func() { defer func() { done <- struct{}{} }(); run() }, nil)
	}
	defer func() { cancel(); <-done; <-done }()
	s.Observe(space("solar", "solar", ""))
	source := s.Source("solar")

	// caughtUp waits until spaces have what the host has, as it is now.
	caughtUp := func() {
		t.Helper()
		testhost.Eventually(t, "the definition as the host has it", func(ctx context.Context) error {
			if err := host.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
				return err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if is := s.served[gadgets]; is == nil || is.optional == nil || is.version != crd.ResourceVersion {
				return fmt.Errorf("spaces have %+v, want version %s", is, crd.ResourceVersion)
			}
			return nil
		})
	}
	caughtUp()
	set, changed := source.Watch()
	patch := func(data string) {
		t.Helper()
		if err := host.Patch(t.Context(), crd, client.RawPatch(types.MergePatchType, []byte(data))); err != nil {
			t.Fatal(err)
		}
		caughtUp()
	}
	patch(`{"metadata": {"labels": {"a": "b"}}}`)
	patch(`{"metadata": {"annotations": {"example.com/a": "b"}}}`)
	crd.Status.Conditions = append(crd.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: "Observed", Status: apiextensionsv1.ConditionTrue, Reason: "Test",
	})
	if err := host.Status().Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	caughtUp()
	select {
	case <-changed:
		t.Error("spaces switch because of a label, an annotation, or the status")
	default:
	}
	if now, _ := source.Watch(); now.Of(gadgets) != set.Of(gadgets) {
		t.Error("the definition is in memory once more")
	}
	patch(`{"spec": {"names": {"shortNames": ["g"]}}}`)
	testhost.Eventually(t, "another definition", func(context.Context) error {
		now, _ := source.Watch()
		if names := now.Of(gadgets).CRD.Status.AcceptedNames.ShortNames; len(names) != 1 {
			return fmt.Errorf("the short names are %v", names)
		}
		return nil
	})
	select {
	case <-changed:
	default:
		t.Error("spaces don't switch because of short names")
	}
}
