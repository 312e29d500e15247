// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// modelHost is a host whose watch is behind by as many events as a test likes.
type modelHost struct {
	*rapid.T
	h       *Host
	router  *Router
	version int
	objects map[string]*corev1.ConfigMap // by SPACE/NAME
	pending []modelEvent                 // that the watch has not brought
	// collected is what a new watch has collected, at a version; nil if there is none.
	collected []any
	at        int
}

type modelEvent struct {
	object  *corev1.ConfigMap
	deleted bool
}

func newModelHost(t *rapid.T) *modelHost {
	m := &modelHost{T: t, objects: map[string]*corev1.ConfigMap{}, version: 1}
	m.h = &Host{Options: Options{OwnOnly: true}, Routers: map[string]*Router{}, own: ownSpaces{of: map[string]*ownSpace{"a": {cached: true}}}}
	m.router = m.h.newRouter(resources.ConfigMaps, nil)
	m.router.list = m.list
	m.h.Routers[resources.ConfigMaps] = m.router
	m.must(m.router.Replace(nil, "1"))
	return m
}

func (m *modelHost) list(_ context.Context, namespace string, _ metav1.ListOptions) (runtime.Object, error) {
	m.steps("before a page")
	all := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(m.version)}}
	for _, key := range slices.Sorted(maps.Keys(m.objects)) {
		if object := m.objects[key]; namespace == "" || object.Namespace == namespace {
			all.Items = append(all.Items, *object.DeepCopy())
		}
	}
	m.steps("after a page")
	return all, nil
}

// own does what [Host.Own] does, in the goroutine of the test.
func (m *modelHost) own(space string) {
	if m.h.own.of[space] == nil {
		m.h.own.of[space] = &ownSpace{}
	}
	for !m.h.own.of[space].cached {
		lost, err := m.router.fill(m.Context(), []string{space})
		if errors.Is(err, errOvertaken) {
			continue
		}
		if err != nil || len(lost) > 0 {
			m.Fatal(lost, err)
		}
		m.h.own.of[space].cached = true
	}
}

// steps lets something happen on the host, and in the watch.
func (m *modelHost) steps(when string) {
	for range rapid.IntRange(0, 6).Draw(m.T, when) {
		m.step()
	}
}

func (m *modelHost) step() {
	before := m.latest()
	space, name := rapid.SampledFrom([]string{"b", "b", "b", "a"}).Draw(m.T, "space"), "x"
	key := space + "/" + name
	switch rapid.SampledFrom([]string{"write", "delete", "watch", "watch", "collect", "replace"}).Draw(m.T, "step") {
	case "write":
		m.version++
		m.objects[key] = configMap(space, name, strconv.Itoa(m.version))
		m.pending = append(m.pending, modelEvent{m.objects[key], false})
		return
	case "delete":
		if m.objects[key] != nil {
			m.version++
			delete(m.objects, key)
			m.pending = append(m.pending, modelEvent{configMap(space, name, strconv.Itoa(m.version)), true})
		}
		return
	case "watch":
		m.watch()
	case "collect":
		m.collected, m.at = []any{}, m.version
		for _, object := range m.objects {
			collected, err := m.router.Transformer()(object.DeepCopy())
			m.must(err)
			m.collected = append(m.collected, collected)
		}
	case "replace":
		if m.collected != nil && uint64(m.at) >= m.router.Reached.Load() {
			m.must(m.router.Replace(m.collected, strconv.Itoa(m.at)))
			m.pending = slices.DeleteFunc(m.pending, func(e modelEvent) bool { return Version(e.object.ResourceVersion) <= uint64(m.at) })
		}
		m.collected = nil
	}
	for key, version := range before { // nothing that was up to date is lost, or replaced by what was before
		if now := m.cached(key); now != version && m.objects[key] != nil {
			m.Fatalf("the cache had the latest version %s of %s, and has %q", version, key, now)
		}
	}
}

// watch brings the next event.
func (m *modelHost) watch() {
	if len(m.pending) == 0 {
		return
	}
	next := m.pending[0]
	m.pending = m.pending[1:]
	if next.deleted {
		m.must(m.router.Delete(next.object.DeepCopy()))
	} else {
		m.must(m.router.Add(next.object.DeepCopy()))
	}
}

func (m *modelHost) must(err error) {
	if err != nil {
		m.Fatal(err)
	}
}

// cached returns the version in the cache; empty if there is none.
func (m *modelHost) cached(key string) string {
	if object, ok := m.router.Get(translate.HostNamespacePrefix + key).(*corev1.ConfigMap); ok {
		return object.ResourceVersion
	}
	return ""
}

// latest returns the objects of own spaces whose latest version is cached.
func (m *modelHost) latest() map[string]string {
	all := map[string]string{}
	for key, object := range m.objects {
		if m.h.HasCached(spaceIn(object.Namespace)) && m.cached(key) == object.ResourceVersion {
			all[key] = object.ResourceVersion
		}
	}
	return all
}

// check compares the cache with the host, except for objects of which the watch has yet to bring something.
func (m *modelHost) check() {
	m.Helper()
	waits := map[string]bool{}
	for _, e := range m.pending {
		waits[spaceIn(e.object.Namespace)+"/"+e.object.Name] = true
	}
	for _, space := range []string{"a", "b"} {
		key, want := space+"/x", ""
		if object := m.objects[key]; object != nil && m.h.HasCached(space) {
			want = object.ResourceVersion
		}
		if got := m.cached(key); got != want && !waits[key] {
			m.Fatalf("the cache has version %q of %s, want %q", got, key, want)
		}
	}
}

// However lists, the watch, and new watches interleave, the cache has what the host has of the own spaces.
func TestListsAndTheWatchAgree(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := newModelHost(r)
		for range rapid.IntRange(1, 8).Draw(r, "rounds") {
			m.steps("between")
			m.own("b")
			m.check()
			m.steps("while it is own")
			m.must(m.h.Disown("b"))
		}
		for len(m.pending) > 0 {
			m.watch()
		}
		m.check()
	})
}
