// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/pki"
)

func startForTests(t *testing.T, name string) *ControlPlane {
	t.Helper()
	ca, err := pki.OpenCA(t.TempDir(), "serving")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(t.Context(), Config{Name: name, Dir: t.TempDir(), Endpoint: "https://127.0.0.1:1", ServingCA: ca.PEM()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// T2: lists from a cache hold what was written before they were asked for, and
// the cache goes when nobody reads long lists.
func TestLongListsAreCachedWhileTheyAreReadAndStayConsistent(t *testing.T) {
	var p *ControlPlane
	t.Cleanup(func() { // after its stop
		if n := len(p.store.lists.open); n > 0 {
			t.Errorf("%d caches are left of a stopped control plane", n)
		}
	})
	p = startForTests(t, "lists")
	clock := testingclock.NewFakeClock(time.Now())
	p.store.lists.clock = clock
	client, err := kubernetes.NewForConfig(p.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	caches := func() int {
		p.store.lists.mu.Lock()
		defer p.store.lists.mu.Unlock()
		return len(p.store.lists.open)
	}
	maps := client.CoreV1().ConfigMaps("default")
	list := func() *corev1.ConfigMapList {
		t.Helper()
		l, err := maps.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	create := func(name string) {
		t.Helper()
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	}
	var wg sync.WaitGroup
	for w := range 10 {
		wg.Go(func() {
			for i := range cachedListLength / 10 {
				create(fmt.Sprintf("m-%d-%d", w, i))
			}
		})
	}
	wg.Wait()
	if list(); caches() > 0 {
		t.Error("one long list alone makes a cache")
	}
	clock.Step(2 * cachedListQuiet)
	if list(); caches() > 0 {
		t.Error("two long lists far apart make a cache")
	}
	before := list()
	if caches() != 1 {
		t.Errorf("%d caches after two long lists, want 1", caches())
	}
	for i := range 50 {
		create(fmt.Sprintf("late-%d", i))
		if got, want := len(list().Items), len(before.Items)+i+1; got != want {
			t.Fatalf("%d objects after another was made, want %d", got, want)
		}
	}
	if err := maps.Delete(t.Context(), "late-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, want := len(list().Items), len(before.Items)+49; got != want {
		t.Errorf("%d objects after one was deleted, want %d", got, want)
	}
	if caches() != 1 {
		t.Errorf("%d caches while lists are read, want 1", caches())
	}
	clock.Step(2 * cachedListQuiet)
	err = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return caches() == 0, nil })
	if err != nil {
		t.Error("a cache is kept though nobody reads long lists")
	}
	list()
	list() // the control plane stops with a cache
}

// T2: a space that reads long lists of many resources leaves others their caches.
func TestHostileListCachesOfOneSpaceAreFew(t *testing.T) {
	used := func() (int64, int64) { return 0, 1 }
	caches := func(n int) (*listCaches, int) {
		c := newListCaches(used, bounds.NewAccount(nil), testingclock.NewFakeClock(time.Now()))
		entered := 0
		for range n {
			if l := (&cachedLists{}); c.enter(l, 1) {
				entered++
				t.Cleanup(func() { c.leave(l, 1) })
			}
		}
		return c, entered
	}
	c, entered := caches(cachedListsMax)
	if entered != cachedListsOfSpace || c.account.Used(bounds.MemoryBytes) != int64(entered) {
		t.Errorf("a space has %d caches and %d bytes, want %d", entered, c.account.Used(bounds.MemoryBytes), cachedListsOfSpace)
	}
	if _, entered := caches(1); entered != 1 {
		t.Error("another space has no cache")
	}
}
