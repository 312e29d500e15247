// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	// maxWatched and maxWatchedBytes limit what one watch keeps. A selector that selects more is a mistake: a publication may
	// have far less.
	maxWatched, maxWatchedBytes = 4096, 16 << 20
	// MaxObjectBytes limits one object of a publication.
	MaxObjectBytes = 1 << 20
)

// selection is what one watch reads. Publications with equal sources share it.
type selection struct {
	resource         schema.GroupVersionResource
	kind             schema.GroupVersionKind
	namespace        string
	labels, fieldSel string
}

// entry is one object of the host, as little of it as is needed.
type entry struct {
	namespace, name string
	// content is the clean object as JSON, unless the object is refused.
	content []byte
	refused string
}

// watch holds the objects of a selection. It implements [cache.ReflectorStore].
type watch struct {
	selection
	clock   clock.PassiveClock
	timeout time.Duration      // of a request
	changed func()             // called after each change
	stop    context.CancelFunc // ends the watch
	users   map[string]bool    // the publications; package-private to watches

	mu       sync.Mutex
	entries  map[string]entry // by namespace/name
	bytes    int
	read     bool
	tooMuch  time.Time // when it was stopped because it selects too much, or zero
	listErr  error
	watchErr error
}

func (w *watch) run(ctx context.Context, client dynamic.Interface) {
	resource := client.Resource(w.resource).Namespace(w.namespace)
	expected := &unstructured.Unstructured{}
	expected.SetGroupVersionKind(w.kind)
	cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = w.labels, w.fieldSel
			list, err := resource.List(ctx, o)
			w.note(ctx, &w.listErr, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.LabelSelector, o.FieldSelector, o.TimeoutSeconds = w.labels, w.fieldSel, ptr.To(int64(w.timeout/time.Second))
			events, err := resource.Watch(ctx, o)
			if err == nil || denied(err) { // other errors end in a list, which has the better error
				w.note(ctx, &w.watchErr, err)
			}
			if err == nil { // it may have begun with all objects, in place of a list
				w.note(ctx, &w.listErr, nil)
			}
			return events, err
		},
	}, expected, w, cache.ReflectorOptions{
		Name: "sources of publications", Backoff: &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 15 * time.Second},
	}).RunWithContext(ctx)
}

// denied reports whether a request can't succeed before an admin changes something.
func denied(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsUnauthorized(err)
}

func (w *watch) note(ctx context.Context, into *error, err error) {
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	changed := (*into == nil) != (err == nil) || err != nil && err.Error() != (*into).Error()
	*into = err
	w.mu.Unlock()
	if changed {
		w.changed()
	}
}

// get returns the objects. If err is not nil, objects may be missing or old.
func (w *watch) get() (entries []entry, read bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.tooMuch.IsZero() {
		return nil, false, errTooMuch
	}
	if err = w.listErr; err == nil {
		err = w.watchErr
	}
	for _, e := range w.entries {
		entries = append(entries, e)
	}
	return entries, w.read, err
}

var errTooMuch = fmt.Errorf("more than %d objects, or %d MiB of them, are selected; select fewer", maxWatched, maxWatchedBytes>>20)

// expired reports whether the watch was stopped because it selects too much, and it is time to look whether it still does.
func (w *watch) expired() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.tooMuch.IsZero() && w.clock.Since(w.tooMuch) >= slowRetry
}

// put takes over an object. The caller holds mu.
func (w *watch) put(item any) error {
	object, ok := item.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("store source of a publication: unexpected type %T", item)
	}
	e := entry{namespace: object.GetNamespace(), name: object.GetName(), refused: Refuse(object)}
	if e.refused == "" {
		content, err := json.Marshal(Clean(object))
		switch {
		case err != nil:
			e.refused = "it can't be written as JSON: " + err.Error()
		case len(content) > MaxObjectBytes:
			e.refused = fmt.Sprintf("it has %d KiB, and an object may have at most %d KiB", len(content)>>10, MaxObjectBytes>>10)
		default:
			e.content = content
		}
	}
	key := e.namespace + "/" + e.name
	w.bytes += len(e.content) - len(w.entries[key].content)
	w.entries[key] = e
	if len(w.entries) > maxWatched || w.bytes > maxWatchedBytes {
		w.tooMuch, w.entries = w.clock.Now(), map[string]entry{}
		w.stop()
	}
	return nil
}

// Add implements [cache.ReflectorStore].
func (w *watch) Add(item any) error { return w.Update(item) }

// Update implements [cache.ReflectorStore].
func (w *watch) Update(item any) error {
	w.mu.Lock()
	err := w.put(item)
	w.mu.Unlock()
	w.changed()
	return err
}

// Delete implements [cache.ReflectorStore].
func (w *watch) Delete(item any) error {
	object, ok := item.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("remove source of a publication: unexpected type %T", item)
	}
	w.mu.Lock()
	key := object.GetNamespace() + "/" + object.GetName()
	w.bytes -= len(w.entries[key].content)
	delete(w.entries, key)
	w.mu.Unlock()
	w.changed()
	return nil
}

// Replace implements [cache.ReflectorStore].
func (w *watch) Replace(items []any, _ string) error {
	w.mu.Lock()
	defer w.changed()
	defer w.mu.Unlock()
	w.entries, w.bytes, w.read = map[string]entry{}, 0, true
	for _, item := range items {
		if err := w.put(item); err != nil {
			return err
		}
		if !w.tooMuch.IsZero() {
			return nil
		}
	}
	return nil
}

// Resync implements [cache.ReflectorStore]. It does nothing.
func (w *watch) Resync() error { return nil }
