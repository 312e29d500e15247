// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/resources"
)

// watched is a router that gets its events from a test.
type watched struct {
	*Router
	t *testing.T
	h *Host
	l *lists
}

func (w watched) put(version string) { put(w.t, w.Router, configMap("b", "listed", version)) }

func (w watched) delete(version string) {
	if err := w.Delete(configMap("b", "listed", version)); err != nil {
		w.t.Error(err)
	}
}

func (w watched) replace(version string, all ...client.Object) {
	objs := make([]any, len(all))
	for i := range all {
		objs[i] = all[i]
	}
	if err := w.Replace(objs, version); err != nil {
		w.t.Error(err)
	}
}

// What the watch brings while a list is under way counts, whichever is processed first.
func TestTheWatchDuringAList(t *testing.T) {
	tests := map[string]struct {
		listed           string // version of the object in the list; 50 if empty
		meanwhile, after func(w watched)
		want             string // version of the cached object; empty if there is none
	}{
		"nothing":                           {want: "50"},
		"a newer version":                   {meanwhile: func(w watched) { w.put("120") }, want: "120"},
		"an older version":                  {meanwhile: func(w watched) { w.put("40") }, want: "50"},
		"a deletion":                        {meanwhile: func(w watched) { w.delete("120") }},
		"a deletion of what was before":     {meanwhile: func(w watched) { w.delete("30") }, want: "50"},
		"a deletion, and another object":    {meanwhile: func(w watched) { w.delete("120"); w.put("130") }, want: "130"},
		"an older version, late":            {after: func(w watched) { w.put("40") }, want: "50"},
		"a newer version, late":             {after: func(w watched) { w.put("110") }, want: "110"},
		"a deletion of before, late":        {after: func(w watched) { w.delete("40") }, want: "50"},
		"a deletion, late":                  {after: func(w watched) { w.delete("110") }},
		"a new watch, from before the list": {after: func(w watched) { w.replace("45") }, want: "50"},
		"a new watch":                       {after: func(w watched) { w.replace("110") }},
		"a new watch of a host that was restored from a backup": {after: func(w watched) {
			w.put("110")
			w.replace("45", configMap("b", "listed", "44"))
		}, want: "44"},
		"a new watch during the list": {meanwhile: func(w watched) {
			w.l.set(func(l *lists) { l.objects = nil })
			w.replace("110")
		}},
		"a new watch during the list, with the object": {
			meanwhile: func(w watched) { w.replace("110", configMap("b", "listed", "50")) }, want: "50",
		},
		"a new watch that began before the space was own": {
			meanwhile: func(w watched) { w.replace("45", reduced(configMap("b", "listed", "40"), "b")) }, want: "50",
		},
		"versions that are no numbers":               {listed: "x", want: "x"},
		"versions that are no numbers, and a change": {listed: "x", meanwhile: func(w watched) { w.put("y") }, want: "y"},
		"versions that are no numbers, and a new watch from before": {
			listed: "x", after: func(w watched) { w.replace("latest", reduced(configMap("b", "listed", "w"), "b")) }, want: "x",
		},
		"versions that are no numbers, and a deletion": {listed: "x", meanwhile: func(w watched) { w.delete("y") }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h, l := ownHost(t, "a")
			if test.listed != "" {
				l.version = "latest"
			}
			l.objects[resources.ConfigMaps] = []client.Object{configMap("b", "listed", cmp.Or(test.listed, "50"))}
			w := watched{h.Routers[resources.ConfigMaps], t, h, l}
			var once sync.Once
			l.meanwhile = func(resource string) {
				if resource == resources.ConfigMaps && test.meanwhile != nil {
					once.Do(func() { test.meanwhile(w) })
				}
			}
			mustOwn(t, h, "b")
			if test.after != nil {
				test.after(w)
			}
			got := ""
			if o, ok := Get[*corev1.ConfigMap](h, resources.ConfigMaps, "berth-b", "listed"); ok {
				got = o.ResourceVersion
			}
			if got != test.want {
				t.Errorf("the cache has version %q, want %q", got, test.want)
			}
		})
	}
}

// A space that leaves while it is listed isn't cached, and one that comes back is listed anew.
func TestASpaceLeavesDuringAList(t *testing.T) {
	h, l := ownHost(t, "a")
	l.objects[resources.ConfigMaps] = []client.Object{configMap("b", "listed", "50")}
	l.meanwhile = func(resource string) {
		if resource == resources.ConfigMaps {
			_ = h.Disown("b")
		}
	}
	if err := h.Own(t.Context(), "b"); !errors.Is(err, errDisowned) {
		t.Errorf("a space that has left is own: %v", err)
	}
	wantCached(t, h, resources.ConfigMaps)
	l.set(func(l *lists) { l.meanwhile = nil })
	mustOwn(t, h, "b")
	wantCached(t, h, resources.ConfigMaps, "berth-b/listed")
}

// A space that deletes more than is noted during a list fails alone, and is listed again. Nothing is cached of what it
// has deleted, whether the list had brought that before or not.
func TestDeletionsDuringAListAreBounded(t *testing.T) {
	for during, request := range map[string]string{"the first page": "configmaps/berth-b", "the second page": "configmaps/berth-b+"} {
		t.Run(during, func(t *testing.T) {
			h, l := ownHost(t)
			left := []client.Object{configMap("b", "listed", "50"), configMap("c", "listed", "51")}
			l.objects[resources.ConfigMaps] = left
			deleted := make([]client.Object, 3*maxGone)
			for i := range deleted {
				deleted[i] = configMap("b", fmt.Sprint("other-", i), "120")
				l.objects[resources.ConfigMaps] = append(l.objects[resources.ConfigMaps], configMap("b", fmt.Sprint("other-", i), "50"))
			}
			var once sync.Once
			noted := 0
			l.meanwhile = func(resource string) {
				if requests := l.of(resource); resource != resources.ConfigMaps || requests[len(requests)-1] != request {
					return
				}
				once.Do(func() { noted = deleteDuringAList(t, h.Routers[resource], deleted, "b") })
			}
			waits := h.beginOwn([]string{"b", "c"})
			if err := h.Own(t.Context(), "b"); !errors.Is(err, errOvertaken) {
				t.Errorf("a space that has deleted too much is complete: %v", err)
			}
			mustOwn(t, h, "c")
			if noted != maxGone || waits["b"] != waits["c"] {
				t.Errorf("%d deletions were noted", noted)
			}
			l.set(func(l *lists) { l.objects[resources.ConfigMaps] = left })
			mustOwn(t, h, "b")
			wantCached(t, h, resources.ConfigMaps, "berth-b/listed", "berth-c/listed")
		})
	}
}

// deleteDuringAList returns how many deletions were noted for a space by the lists under way.
func deleteDuringAList(t *testing.T, r *Router, deleted []client.Object, space string) (noted int) {
	t.Helper()
	for _, o := range deleted {
		if err := r.Delete(o); err != nil {
			t.Error(err)
		}
	}
	r.writes.Lock()
	defer r.writes.Unlock()
	for listing := range r.listings {
		noted += len(listing.gone[space])
	}
	return noted
}

func TestAFailedListIsTriedAgain(t *testing.T) {
	h, l := ownHost(t, "a")
	l.objects[resources.ConfigMaps] = []client.Object{configMap("b", "listed", "50")}
	l.fails = errors.New("the host is not there")
	if err := h.Own(t.Context(), "b"); err == nil || !strings.Contains(err.Error(), l.fails.Error()) || h.HasCached("b") {
		t.Errorf("the list failed, and the space is complete: %v", err)
	}
	put(t, h.Routers[resources.ConfigMaps], configMap("b", "changed", "60"))
	wantCached(t, h, resources.ConfigMaps, "berth-b/changed") // its events count already
	l.set(func(l *lists) { l.fails = nil })
	mustOwn(t, h, "b")
	wantCached(t, h, resources.ConfigMaps, "berth-b/changed", "berth-b/listed")

	blocked := make(chan struct{})
	l.set(func(l *lists) { l.meanwhile = func(string) { <-blocked } })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Own(ctx, "c"); !errors.Is(err, context.Canceled) {
		t.Errorf("it waits longer than its context lasts: %v", err)
	}
	close(blocked)
	mustOwn(t, h, "c")
}

// After a failover, thousands of spaces come at once: they cost a few lists of all objects, in pages.
func TestManySpacesAreListedTogether(t *testing.T) {
	h, l := ownHost(t)
	const spaces, each = 2000, 2
	names := make([]string, spaces)
	for i := range names {
		names[i] = fmt.Sprint("space-", i)
		for j := range each {
			l.objects[resources.Pods] = append(l.objects[resources.Pods], podAt(names[i], fmt.Sprint("web-", j), "50", ""))
		}
		l.objects[resources.Pods] = append(l.objects[resources.Pods], podAt("other-"+names[i], "web", "50", ""))
	}
	var once sync.Once
	blocked := make(chan struct{})
	began := make(chan struct{})
	l.meanwhile = func(string) {
		once.Do(func() { close(began) })
		<-blocked
	}
	h.BeginOwn(names[0])
	<-began
	for _, name := range names[1:] {
		h.BeginOwn(name)
	}
	close(blocked)
	mustOwn(t, h, names...)
	requests := l.of(resources.Pods)
	all := slices.DeleteFunc(slices.Clone(requests), func(r string) bool { return !strings.HasPrefix(r, "pods/+") && r != "pods/" })
	if pages := (each + 1) * spaces / listPage; len(all) != pages || len(requests) > pages+maxBatches {
		t.Errorf("%d spaces cost %d lists, %d of all namespaces, want %d pages", spaces, len(requests), len(all), pages)
	}
	if got := len(h.Routers[resources.Pods].Keys()); got != each*spaces {
		t.Errorf("the cache has %d objects, want %d", got, each*spaces)
	}
}

// Config maps and secrets are listed in small pages, as they may be large.
func TestPagesOfLargeObjectsAreSmall(t *testing.T) {
	h, l := ownHost(t)
	want := map[string]int{resources.ConfigMaps: 3, resources.Secrets: 3, resources.Pods: 1}
	for i := range 2*dataPage + 1 {
		name := fmt.Sprint("listed-", i)
		l.objects[resources.ConfigMaps] = append(l.objects[resources.ConfigMaps], configMap("b", name, "50"))
		l.objects[resources.Secrets] = append(l.objects[resources.Secrets], &corev1.Secret{ObjectMeta: of("b", name, "50")})
		l.objects[resources.Pods] = append(l.objects[resources.Pods], podAt("b", name, "50", ""))
	}
	mustOwn(t, h, "b")
	for resource, pages := range want {
		if got := len(l.of(resource)); got != pages {
			t.Errorf("%s are listed in %d pages, want %d", resource, got, pages)
		}
		if got := len(h.Routers[resource].Keys()); got != 2*dataPage+1 {
			t.Errorf("%d %s are cached", got, resource)
		}
	}
}

// A cached object doesn't keep the page that it comes from in memory, with all objects of other spaces.
func TestACachedObjectDoesNotKeepItsPage(t *testing.T) {
	h, _ := ownHost(t)
	page := &corev1.ConfigMapList{Items: []corev1.ConfigMap{*configMap("b", "one", "50"), *configMap("c", "other", "50")}}
	h.Routers[resources.ConfigMaps].list = func(context.Context, string, metav1.ListOptions) (runtime.Object, error) { return page, nil }
	mustOwn(t, h, "b")
	wantCached(t, h, resources.ConfigMaps, "berth-b/one")
	if o, _ := Get[*corev1.ConfigMap](h, resources.ConfigMaps, "berth-b", "one"); o == &page.Items[0] {
		t.Error("the cached object is a part of the page")
	}
}

func widget(space, name, version string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	id := of(space, name, version)
	u.SetNamespace(id.Namespace)
	u.SetName(id.Name)
	u.SetUID(id.UID)
	u.SetResourceVersion(id.ResourceVersion)
	u.SetLabels(id.Labels)
	return u
}

// declareWidgets returns a watch of a declaration that gets its events from its test.
func declareWidgets(h *Host, l *lists) *declaredWatch {
	r := newRouter(spaceOf, nil, nil)
	h.listDeclared(r, l.list("widgets"))
	return &declaredWatch{Declaration: &declaration.Declaration{Name: "widgets"}, router: r}
}

// collect returns an object as a new watch of a router collects it.
func collect(t *testing.T, r *Router, o client.Object) []any {
	t.Helper()
	collected, err := r.Transformer()(o)
	if err != nil {
		t.Fatal(err)
	}
	return []any{collected}
}

// The objects of a declaration are listed for a space if the watch has synced. A watch that has not brings them itself.
func TestDeclaredObjectsOfASpaceThatBecomesOwn(t *testing.T) {
	h, l := ownHost(t, "a")
	h.declared.of = map[string]*declaredWatch{"widgets": declareWidgets(h, l)}
	h.declared.next = map[string]*declaredWatch{"widgets": declareWidgets(h, l)}
	runs, next := h.declared.of["widgets"].router, h.declared.next["widgets"].router
	l.objects["widgets"] = []client.Object{widget("b", "one", "2")}
	collected := collect(t, next, widget("b", "one", "2")) // before the space is own
	if err := runs.Replace(nil, "1"); err != nil {
		t.Fatal(err)
	}
	mustOwn(t, h, "b")
	if got := l.of("widgets"); len(got) != 1 {
		t.Errorf("lists: %v", got)
	}
	if keys := runs.Keys(); !slices.Equal(keys, []string{"berth-b/one"}) {
		t.Errorf("the watch that has synced has %v", keys)
	}
	if err := next.Replace(collected, "2"); !errors.Is(err, errOwnMeanwhile) || next.isFilled() {
		t.Errorf("a watch has synced without an object of an own space: %v", err)
	}
	if err := next.Replace([]any{widget("b", "one", "2"), widget("c", "one", "3")}, "3"); err != nil || !slices.Equal(next.Keys(), []string{"berth-b/one"}) {
		t.Errorf("the watch that has synced then has %v (%v)", next.Keys(), err)
	}
}

// A space that becomes own while the watch of a declaration syncs, after its objects were dropped, is listed.
func TestASpaceBecomesOwnWhileADeclarationSyncs(t *testing.T) {
	h, l := ownHost(t, "a")
	h.declared.of = map[string]*declaredWatch{"widgets": declareWidgets(h, l)}
	r := h.declared.of["widgets"].router
	l.objects["widgets"] = []client.Object{widget("b", "one", "2")}
	collected := collect(t, r, widget("b", "one", "2"))
	var once sync.Once
	listed := make(chan struct{})
	l.meanwhile = func(string) { once.Do(func() { close(listed) }) }
	asked := 0 // whether the space is own: first to check whether all of it was collected, and then to drop it
	r.own = func(space string) bool {
		isOwn := h.IsOwn(space)
		if asked++; asked == 2 {
			h.BeginOwn("b")
			<-listed // other resources are listed for the space now
		}
		return isOwn
	}
	if err := r.Replace(collected, "3"); err != nil {
		t.Fatal(err)
	}
	mustOwn(t, h, "b")
	if keys := r.Keys(); !slices.Equal(keys, []string{"berth-b/one"}) {
		t.Errorf("the watch has %v", keys)
	}
}
