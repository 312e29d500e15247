// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/berth-dev/berth/definitions"
)

// own creates a ConfigMap with owners.
func own(t *testing.T, maps corev1client.ConfigMapInterface, name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	t.Helper()
	made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func ownerOf(kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "example.com/v1", Kind: kind, Name: name, UID: uid}
}

func waitDeleted(t *testing.T, maps corev1client.ConfigMapInterface, name string) {
	t.Helper()
	eventually(t, func() error {
		_, err := maps.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil {
			return errors.New(name + " is there")
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// waitCollector waits until the garbage collector has deleted what it finds after now.
func waitCollector(t *testing.T, maps corev1client.ConfigMapInterface) {
	t.Helper()
	const workers = 20 // of the collector; each may be busy with another object
	var names []string
	for range 2 * workers {
		name := "garbage-" + rand.String(8)
		own(t, maps, name, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "never", UID: "00000000-0000-4000-8000-000000000000"})
		names = append(names, name)
	}
	for _, name := range names {
		waitDeleted(t, maps, name)
	}
}

// waitForDefinition waits until the definition of widgets in force is the platform's, or not.
func (o tenantOf) waitForDefinition(t *testing.T, want string) {
	t.Helper()
	eventually(t, func() error {
		got := "none"
		crd, err := o.crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), widgetsCRD, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return err
		case definitions.IsShared(crd):
			got = "shared"
		default:
			got = "local"
		}
		if got != want {
			return fmt.Errorf("the definition in force is %s, want %s", got, want)
		}
		return nil
	})
}

// TestASwitchKeepsWhatAnObjectOfAnotherKindOwns has two definitions of one name whose kinds differ (C5).
func TestASwitchKeepsWhatAnObjectOfAnotherKindOwns(t *testing.T) {
	t.Parallel()
	optional := &definitions.Shared{CRD: shared(t, hostWidgets()), InRange: true}
	c := config(t, "owning-a-kind")
	c.Definitions = &definitions.Source{}
	space := start(t, c)
	tenant := newTenantOf(t, space)
	maps := clientset(t, space.Loopback()).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	local := localWidgets()
	local.Spec.Names.Kind = "Wodget"
	tenant.define(t, local)
	object := widget("red", map[string]any{"color": "red"})
	object.SetKind("Wodget")
	red, err := tenant.widgets.Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other := own(t, maps, "other")
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		own(t, maps, name, ownerOf("Wodget", "red", red.GetUID()),
			metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: other.Name, UID: other.UID})
	}
	own(t, maps, "forged", ownerOf("Wodget", "red", "00000000-0000-4000-8000-000000000000"))
	waitDeleted(t, maps, "forged") // now the collector knows wodgets

	c.Definitions.Set(definitions.NewSet(definitions.SystemCRDFirst, optional))
	tenant.waitForSize(t, true)
	if err := maps.Delete(t.Context(), other.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitCollector(t, maps)
	c.Definitions.Set(nil)
	tenant.waitForDefinition(t, "local")
	eventually(t, func() error {
		_, err := tenant.widgets.Get(t.Context(), "red", metav1.GetOptions{})
		return err
	})
	waitCollector(t, maps)
	for _, name := range names {
		if _, err := maps.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("what an object owns whose definition was not in force: %v", err)
		}
	}
	if err := tenant.widgets.Delete(t.Context(), "red", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		waitDeleted(t, maps, name)
	}
}

// TestWhatAnObjectWithoutADefinitionOwnsIsKept has no definition in force of an owner's name: because the share ended, or by the policy.
// What it owns has another owner, which is deleted (C5).
func TestWhatAnObjectWithoutADefinitionOwnsIsKept(t *testing.T) {
	t.Parallel()
	optional := &definitions.Shared{CRD: shared(t, hostWidgets()), InRange: true}
	c := config(t, "owning-unserved")
	c.Definitions = &definitions.Source{}
	space := start(t, c)
	tenant := newTenantOf(t, space)
	maps := clientset(t, space.Loopback()).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for name, without := range map[string]*definitions.Set{
		"ended": nil, "never": definitions.NewSet(definitions.NeverUseSystemCRDUnlessForced, optional),
	} {
		c.Definitions.Set(definitions.NewSet("", optional))
		tenant.waitForSize(t, true)
		large, err := tenant.widgets.Create(t.Context(), widget(name, map[string]any{}), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		other := own(t, maps, "other-"+name)
		own(t, maps, "both-"+name, ownerOf("Widget", name, large.GetUID()),
			metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: other.Name, UID: other.UID})
		own(t, maps, "only-"+name, ownerOf("Widget", name, large.GetUID()))
		own(t, maps, "forged-"+name, ownerOf("Widget", name, "00000000-0000-4000-8000-000000000000"))
		waitDeleted(t, maps, "forged-"+name) // now the collector knows widgets

		c.Definitions.Set(without)
		tenant.waitForDefinition(t, "none")
		if err := maps.Delete(t.Context(), other.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		waitCollector(t, maps)
		c.Definitions.Set(definitions.NewSet("", optional))
		tenant.waitForSize(t, true)
		tenant.get(t, name)
		waitCollector(t, maps)
		for _, kept := range []string{"both-", "only-"} {
			if _, err := maps.Get(t.Context(), kept+name, metav1.GetOptions{}); err != nil {
				t.Errorf("what an object owns whose definition was not in force: %v", err)
			}
		}
		if err := tenant.widgets.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		waitDeleted(t, maps, "both-"+name)
		waitDeleted(t, maps, "only-"+name)
	}
}

// TestASwitchOfDefinitionsKeepsWhatObjectsOwn has the garbage collector look for owners whose definition is not in force, also when the
// other definition has an object with the same name (C5).
func TestASwitchOfDefinitionsKeepsWhatObjectsOwn(t *testing.T) {
	t.Parallel()
	optional := &definitions.Shared{CRD: shared(t, hostWidgets()), InRange: true}
	c := config(t, "owning")
	c.Definitions = &definitions.Source{}
	space := start(t, c)
	tenant := newTenantOf(t, space)
	maps := clientset(t, space.Loopback()).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	own := func(name, owner string, uid types.UID) {
		t.Helper()
		own(t, maps, name, ownerOf("Widget", owner, uid))
	}
	waitDeleted := func(name string) {
		t.Helper()
		waitDeleted(t, maps, name)
	}
	tenant.define(t, localWidgets())
	red, err := tenant.widgets.Create(t.Context(), widget("red", map[string]any{"color": "red"}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own("before", "red", red.GetUID())

	c.Definitions.Set(definitions.NewSet(definitions.SystemCRDFirst, optional))
	tenant.waitForSize(t, true)
	own("without", "red", red.GetUID())
	own("garbage-1", "never", "00000000-0000-4000-8000-000000000000")
	waitDeleted("garbage-1")
	other, err := tenant.widgets.Create(t.Context(), widget("red", map[string]any{}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own("namesake", "red", red.GetUID())
	own("theirs", "red", other.GetUID())
	own("garbage-2", "never", "00000000-0000-4000-8000-000000000000")
	waitDeleted("garbage-2")
	if err := tenant.widgets.Delete(t.Context(), "red", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitDeleted("theirs")

	c.Definitions.Set(definitions.NewSet(definitions.LocalCRDFirst, optional))
	tenant.waitForSize(t, false)
	for _, name := range []string{"before", "without", "namesake"} {
		if _, err := maps.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("what an object owns whose definition was not in force: %v", err)
		}
	}
	if err := tenant.widgets.Delete(t.Context(), "red", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"before", "without", "namesake"} {
		waitDeleted(name)
	}
}
