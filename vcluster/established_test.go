// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	etcd "go.etcd.io/etcd/client/v3/kubernetes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/berth-dev/berth/kine"
)

// D1: a definition is established by the next run if the last one stopped when it had accepted the names.
func TestADefinitionIsEstablishedAfterARestart(t *testing.T) {
	t.Parallel()
	c := config(t, "established")
	p := start(t, c)
	tenant := newTenantOf(t, p)
	tenant.define(t, hostWidgets())
	stop(t, p) // define has waited until it was established
	store, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(c.Dir, "store.db"), Name: c.Name})
	if err != nil {
		t.Fatal(err)
	}
	const key = "/registry/apiextensions.k8s.io/customresourcedefinitions/" + widgetsCRD
	stored, err := store.Client().Kubernetes.Get(t.Context(), key, etcd.GetOptions{})
	if err != nil || stored.KV == nil {
		t.Fatalf("the definition is not in the store: %v", err)
	}
	crd := &unstructured.Unstructured{} // which is not stored as of the version v1
	if err := crd.UnmarshalJSON(stored.KV.Value); err != nil {
		t.Fatal(err)
	}
	conditions, _, err := unstructured.NestedSlice(crd.Object, "status", "conditions")
	if err != nil {
		t.Fatal(err)
	}
	conditions = slices.DeleteFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == "Established" })
	if err := unstructured.SetNestedSlice(crd.Object, conditions, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	changed, err := crd.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Client().Kubernetes.OptimisticPut(t.Context(), key, changed, stored.KV.ModRevision, etcd.PutOptions{GetOnFailure: true}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	again := newTenantOf(t, start(t, c))
	eventually(t, func() error {
		if !established(again.crd(t)) {
			return errors.New("the definition is not established")
		}
		return nil
	})
	eventually(t, func() error {
		_, err := again.widgets.Create(t.Context(), widget("one", map[string]any{"size": int64(5)}), metav1.CreateOptions{})
		return err
	})
}
