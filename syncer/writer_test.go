// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// at is an informer whose watch is at a version: what it has told is up to the test.
type at struct {
	cache.SharedIndexInformer
	version string
}

func (a *at) LastSyncResourceVersion() string { return a.version }

// T8: a write has been seen when the watch has told of it, not when it has only
// got it; and one that a cut watch never tells keeps no space awake for good.
func TestAWriteIsSeenWhenTheWatchHasToldOfIt(t *testing.T) {
	pod := func(version int) *corev1.Pod {
		p := hostPod("demo", "p")
		p.UID, p.ResourceVersion = "u", fmt.Sprint(version)
		return p
	}
	now := time.Now()
	watch := &at{cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, cache.Indexers{}), "10"}
	f, err := newFanout(watch, spaceOf, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := newWriter(nil, &Host{fanouts: map[string]*fanout{pods: f}})
	expect := func(what string, want bool) {
		t.Helper()
		if got := w.seen(now); got != want {
			t.Errorf("%s: seen: %t", what, got)
		}
	}
	expect("nothing was written", true)
	w.wrote(pods, "12")
	expect("written", false)
	watch.version = "12"
	expect("the watch has got it", false)
	f.OnAdd(pod(12), false)
	expect("the watch has told of it", true)

	if err := watch.GetIndexer().Add(pod(12)); err != nil {
		t.Fatal(err)
	}
	w.deleted[object{pods, client.ObjectKeyFromObject(pod(12))}] = "u"
	expect("deleted", false)
	if err := watch.GetIndexer().Delete(pod(12)); err != nil {
		t.Fatal(err)
	}
	watch.version = "13"
	expect("the watch has got the deletion", false)
	f.OnDelete(pod(13))
	expect("the watch has told of the deletion", true)

	w.wrote(pods, "20")
	watch.version = "25" // a watch that begins anew, after the object has gone
	expect("passed over", false)
	now = now.Add(delivery + time.Second)
	expect("passed over long ago", true)
}
