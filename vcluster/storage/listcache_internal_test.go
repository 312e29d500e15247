// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // ConfigMaps in the scheme
	testingclock "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/vcluster/builtin"
)

// openConfigMaps opens the storage of ConfigMaps in a store of its own.
func openConfigMaps(t *testing.T) (*Store, storage.Interface) {
	t.Helper()
	store, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(t.TempDir(), "store.db"), Name: "lists"})
	if err != nil {
		t.Fatal(err)
	}
	s := New(store, nil)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if n := len(s.Lists.open); n > 0 {
			t.Errorf("%d caches are left of a store that is closed", n)
		}
	})
	maps := builtin.Resource{
		Config: &storagebackend.ConfigForResource{
			Config: storagebackend.Config{
				Codec:               legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion),
				Prefix:              "/registry",
				EventsHistoryWindow: storagebackend.DefaultEventsHistoryWindow,
				LeaseManagerConfig:  etcd3.NewDefaultLeaseManagerConfig(),
			},
			GroupResource: corev1.Resource("configmaps"),
		},
		Prefix: "/configmaps/",
		Key: func(object runtime.Object) (string, error) {
			m, err := meta.Accessor(object)
			if err != nil {
				return "", err
			}
			return "/configmaps/" + m.GetNamespace() + "/" + m.GetName(), nil
		},
		New:        func() runtime.Object { return &core.ConfigMap{} },
		NewList:    func() runtime.Object { return &core.ConfigMapList{} },
		Attributes: storage.DefaultNamespaceScopedAttr,
	}
	opened, err := s.Open(maps)
	if err != nil {
		t.Fatal(err)
	}
	return s, s.Lists.Add(opened, maps)
}

// T2: lists from a cache hold what was written before they were asked for, and
// the cache goes when nobody reads long lists.
func TestLongListsAreCachedWhileTheyAreReadAndStayConsistent(t *testing.T) {
	s, maps := openConfigMaps(t)
	clock := testingclock.NewFakeClock(time.Now())
	s.Lists.clock = clock
	caches := func() int {
		s.Lists.mu.Lock()
		defer s.Lists.mu.Unlock()
		return len(s.Lists.open)
	}
	list := func() *core.ConfigMapList {
		t.Helper()
		l := &core.ConfigMapList{}
		if err := maps.GetList(t.Context(), "/configmaps/default/", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	create := func(name string) {
		t.Helper()
		m := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if err := maps.Create(t.Context(), "/configmaps/default/"+name, m, &core.ConfigMap{}, 0); err != nil {
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
	if err := maps.Delete(
		t.Context(), "/configmaps/default/late-0", &core.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, want := len(list().Items), len(before.Items)+49; got != want {
		t.Errorf("%d objects after one was deleted, want %d", got, want)
	}
	if caches() != 1 {
		t.Errorf("%d caches while lists are read, want 1", caches())
	}
	clock.Step(2 * cachedListQuiet)
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return caches() == 0, nil })
	if err != nil {
		t.Error("a cache is kept though nobody reads long lists")
	}
	list()
	list() // the store is closed with a cache
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
