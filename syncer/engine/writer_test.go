// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// T8: a write has been seen when the watch has told of it, not when it has only
// got it; and one that a cut watch never tells keeps no space awake for good.
func TestAWriteIsSeenWhenTheWatchHasToldOfIt(t *testing.T) {
	pod := func(version int) *corev1.Pod {
		p := podOnHost("p")
		p.UID, p.ResourceVersion = "u", fmt.Sprint(version)
		return p
	}
	store := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var w *Writer
	expect := func(what string, want bool) {
		t.Helper()
		if got := w.seen(); got != want {
			t.Errorf("%s: seen: %t", what, got)
		}
	}
	telling := "" // what the watch is about to tell
	f := hostcache.NewRouter("", func(string) {
		if telling != "" {
			expect(telling, false)
		}
	})
	w = NewWriter(nil, &hostcache.Host{Routers: map[string]*hostcache.Router{resources.Pods: f}})
	store(f.Replace(nil, "10"))
	expect("nothing was written", true)
	w.wrote(resources.Pods, "12")
	expect("written", false)
	telling = "the watch has got it"
	store(f.Add(pod(12)))
	expect("the watch has told of it", true)

	w.deleted[hostcache.Object{Resource: resources.Pods, NamespacedName: client.ObjectKeyFromObject(pod(12))}] = "u"
	expect("deleted", false)
	telling = "the watch has got the deletion"
	store(f.Delete(pod(13)))
	expect("the watch has told of the deletion", true)

	w.wrote(resources.Pods, "20")
	expect("written again", false)
	store(f.Replace(nil, "25"))
	expect("a watch that began anew, after the object had gone", true)
	w.wrote(resources.Pods, "30")
	store(f.Bookmark("29"))
	expect("the watch is not so far", false)
	store(f.Bookmark("30"))
	expect("the watch says that it has told of all up to then", true)
}

// podOnHost is a host pod of the space demo.
func podOnHost(name string) *corev1.Pod {
	space := translate.Space{Name: "demo"}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: space.HostNamespace(), Name: name, UID: "u", Labels: map[string]string{translate.LabelSpace: space.Name}}}
}
