// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // the scheme of built-in kinds
)

func newConfigMaps(t *testing.T) (*storeInformer, *Feed) {
	t.Helper()
	feed := NewFeed(clientv3.NewCtxClient(t.Context()), klog.Background())
	prefix, decode, ok := storedAs(&corev1.ConfigMap{})
	if !ok {
		t.Fatal("config maps are not built in")
	}
	return newStoreInformer(feed, prefix, decode, func(int64) {}), feed
}

// B10: an informer that is stopped while it is about to list is not heard of by the feed again, which lives on.
func TestAStoppedInformerLeavesTheFeed(t *testing.T) {
	i, feed := newConfigMaps(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	i.start(ctx) // it waits for the feed
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		i.stop()
	}()
	for !i.IsStopped() {
		continue
	}
	close(feed.ready) // and goes on
	feed.mu.Lock()
	for len(feed.sinks) == 0 { // give it the time to subscribe, unless it has ended
		feed.mu.Unlock()
		select {
		case <-stopped:
		case <-t.Context().Done():
		default:
			feed.mu.Lock()
			continue
		}
		feed.mu.Lock()
		break
	}
	left := len(feed.sinks)
	feed.mu.Unlock()
	cancel()
	<-stopped
	if left > 0 {
		t.Error("the feed holds an informer that has stopped")
	}
}

// S18: what a tenant writes meets functions that upstream's controllers index objects by; one that panics keeps back neither
// other objects nor other informers, and ends no process.
func TestHostileObjectsThatCannotBeIndexedKeepBackNoOthers(t *testing.T) {
	i, feed := newConfigMaps(t)
	if err := i.indexer.AddIndexers(cache.Indexers{
		"panics": func(o any) ([]string, error) {
			if name := o.(*corev1.ConfigMap).Name; name == "panics" {
				panic("out of range")
			}
			return nil, nil
		},
		"fails": func(o any) ([]string, error) { // client-go panics then
			if o.(*corev1.ConfigMap).Name == "fails" {
				return nil, errors.New("no index")
			}
			return []string{"found"}, nil
		},
	}); err != nil {
		t.Fatal(err)
	}
	other, _ := newConfigMaps(t)
	feed.subscribe(i, i.prefix)
	feed.subscribe(other, other.prefix)
	feed.Observe(panicking{})
	for n, name := range []string{"panics", "fails", "good"} {
		for _, kind := range []int32{0, 0} { // made, and changed
			feed.hand(write(t, i.prefix, name, int64(10*n+int(kind)+1)))
		}
	}
	for who, informer := range map[string]*storeInformer{"the informer": i, "another": other} {
		if _, ok, _ := informer.indexer.GetByKey("default/good"); !ok {
			t.Errorf("%s lacks what came afterwards: %v", who, informer.indexer.ListKeys())
		}
	}
	if found, err := i.indexer.ByIndex("fails", "found"); err != nil || len(found) == 0 {
		t.Errorf("the index finds %d (%v)", len(found), err)
	}
}

// panicking is an observer that can't take what is written.
type panicking struct{}

func (panicking) Wrote(Write) { panic("out of mind") }
func (panicking) Lost()       {}

// write is a change of a store.
func write(t *testing.T, prefix, name string, revision int64) *clientv3.Event {
	t.Helper()
	value, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "x"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &clientv3.Event{Type: clientv3.EventTypePut, Kv: kv(prefix+"default/"+name, value, revision)}
}

// FuzzDecode: whatever is found in a store, reading it ends no process.
func FuzzDecode(f *testing.F) {
	_, d, _ := storedAs(&corev1.Pod{})
	f.Add([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7"}}`))
	f.Add([]byte("k8s\x00\n\x09\n\x02v1\x12\x03Pod\x12\x00\x1a\x00\"\x00"))
	f.Fuzz(func(t *testing.T, value []byte) {
		object, err := d.decode(value, 7)
		if err == nil && object == nil {
			t.Error("neither an object nor an error")
		}
	})
}

func kv(key string, value []byte, revision int64) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(key), Value: value, CreateRevision: revision, ModRevision: revision}
}
