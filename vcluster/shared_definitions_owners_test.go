// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/definitions"
)

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
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: "Widget", Name: owner, UID: uid},
		}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	waitDeleted := func(name string) {
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
