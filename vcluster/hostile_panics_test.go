// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
)

// S18: objects of one space that the code which follows them can't take end neither the process nor another space, and that
// space's informers go on. The hooks stand for a mistake that nobody has found yet.
func TestHostilePanicsEndNeitherTheProcessNorOtherSpaces(t *testing.T) {
	hostile := start(t, config(t, "panics"))
	quiet := start(t, config(t, "quiet"))
	maps := hostile.Informers().Core().V1().ConfigMaps()
	meets := func(o any) {
		if m, ok := o.(*corev1.ConfigMap); ok && m.Data["hostile"] != "" {
			panic("index out of range")
		}
	}
	if err := maps.Informer().AddIndexers(cache.Indexers{"hook": func(o any) ([]string, error) {
		meets(o)
		return nil, nil
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: meets}); err != nil {
		t.Fatal(err)
	}
	hostile.Informers().Start(nil)
	client := clientset(t, hostile.Loopback()).CoreV1().ConfigMaps("default")
	for _, m := range []*corev1.ConfigMap{
		{ObjectMeta: metav1.ObjectMeta{Name: "hostile"}, Data: map[string]string{"hostile": "yes"}}, {ObjectMeta: metav1.ObjectMeta{Name: "good"}},
	} {
		if _, err := client.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		_, err := maps.Lister().ConfigMaps("default").Get("good")
		return err
	})
	if _, err := clientset(t, quiet.Loopback()).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the other space: %v", err)
	}
	select {
	case <-hostile.Done():
		t.Errorf("the space has ended: %v", hostile.Err())
	default:
	}
}

// S18: upstream's own goroutines recover by a function that panics again, unless it is told not to (decision 0008). If it
// did, this test would end the process.
func TestPanicsOfUpstreamsGoroutinesEndNoProcess(t *testing.T) {
	start(t, config(t, "upstream"))
	done := make(chan error, 1)
	go func() {
		defer func() { done <- nil }()
		defer utilruntime.HandleCrashWithContext(context.Background())
		panic(errors.New("an object that upstream can't take"))
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
