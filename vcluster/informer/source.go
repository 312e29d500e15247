// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// source lists and watches one kind in the store, for one informer. It knows no
// selectors and no pages: informers ask for neither.
type source struct {
	prefix string
	decode *decoder
	feed   *Feed

	mu     sync.Mutex
	listed *subscription // begun by the last list, for the watch that follows it
}

var (
	_ cache.ListerWatcher            = (*source)(nil)
	_ cache.ListerWatcherWithContext = (*source)(nil)
)

// ListWithContext returns all objects, and begins to gather the changes for the
// watch to come.
func (s *source) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	next, err := s.feed.subscribe(ctx, s.prefix, s.decode)
	if err != nil {
		return nil, err
	}
	s.keep(next)
	stored, err := s.feed.client.Get(ctx, s.prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("list %s in the store: %w", s.prefix, err)
	}
	revision := stored.Header.Revision
	list := &internalversion.List{
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(revision, 10)},
		Items:    make([]runtime.Object, 0, len(stored.Kvs)),
	}
	for _, kv := range stored.Kvs {
		object, err := s.decode.decode(kv.Value, kv.ModRevision)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", kv.Key, err)
		}
		list.Items = append(list.Items, object)
	}
	next.after = revision
	return list, nil
}

// WatchWithContext returns what follows the last list. After that, and after
// any gap, it says that the client must list again.
func (s *source) WatchWithContext(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	listed := s.listed
	s.listed = nil
	s.mu.Unlock()
	if listed == nil {
		return nil, apierrors.NewResourceExpired("the watch has ended; list again")
	}
	if strconv.FormatInt(listed.after, 10) != o.ResourceVersion {
		listed.Stop()
		return nil, apierrors.NewResourceExpired("the watch does not follow the last list; list again")
	}
	return listed.open(), nil
}

// List is for clients that have no context.
func (s *source) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

// Watch is for clients that have no context.
func (s *source) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// keep replaces what the last list began. Call it with nil in the end.
func (s *source) keep(next *subscription) {
	s.mu.Lock()
	last := s.listed
	s.listed = next
	s.mu.Unlock()
	if last != nil {
		last.Stop()
	}
}

// IsWatchListSemanticsUnSupported says that there are no streamed lists.
func (s *source) IsWatchListSemanticsUnSupported() bool { return true }
