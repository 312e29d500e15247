// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/safego"
)

// nameWatch enqueues the names of objects of one resource that change in a space, if something refers to them. It is
// the store of a reflector that stores no objects. It starts to watch when something refers to an object, or
// immediately if all objects are synced.
type nameWatch struct {
	resource string
	metadata metadata.Getter
	used     usage

	mu      sync.Mutex
	wanted  bool
	enqueue func(Key) // nil while it is closed
	stop    context.CancelFunc
	running sync.WaitGroup
}

// FromNames enqueues changes in the space of the objects that are used.
func (s *Engine) FromNames(resource string, used usage) {
	w := &nameWatch{resource: resource, metadata: s.metadata.Resource(corev1.SchemeGroupVersion.WithResource(resource)), used: used, wanted: used.hosted != nil}
	s.names[resource] = w
	s.Sources.Add(func(q *Queue) (func(), func() bool, error) {
		w.open(q.Add)
		return w.close, nil, nil
	})
}

func (w *nameWatch) open(enqueue func(Key)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enqueue = enqueue
	if w.wanted {
		w.run()
	}
}

// begin starts the watch when it is open.
func (w *nameWatch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.enqueue != nil && !w.wanted {
		w.run()
	}
	w.wanted = true
}

// run is called once. w.mu must be held.
func (w *nameWatch) run() {
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return w.metadata.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return w.metadata.Watch(ctx, o)
		},
	}, w.metadata)
	reflector := cache.NewReflectorWithOptions(source, &metav1.PartialObjectMetadata{}, (*changedNames)(w), cache.ReflectorOptions{Name: "berth-syncer"})
	safego.Go(&w.running, "watch names", func() { reflector.RunWithContext(ctx) }, nil)
}

func (w *nameWatch) close() {
	w.mu.Lock()
	w.enqueue = nil
	stop := w.stop
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
	w.running.Wait()
}

// changedNames implements [cache.ReflectorStore].
type changedNames nameWatch

func (w *changedNames) Add(obj any) error    { return w.changed(obj) }
func (w *changedNames) Update(obj any) error { return w.changed(obj) }
func (w *changedNames) Delete(obj any) error { return w.changed(obj) }
func (w *changedNames) Resync() error        { return nil }

// Transformer implements [cache.TransformingStore]. A reflector collects the existing objects before it watches. Only
// their names are kept, because a space's annotations may take hundreds of megabytes.
func (w *changedNames) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if o, ok := obj.(client.Object); ok {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), ResourceVersion: o.GetResourceVersion()}}, nil
		}
		return obj, nil
	}
}

// Replace enqueues all objects in use, whether they are in the list or missing, because anything may have changed since
// the last event.
func (w *changedNames) Replace(list []any, _ string) error {
	if w.used.hosted == nil {
		list = nil // what is used is already known
	}
	for _, obj := range list {
		if err := w.changed(obj); err != nil {
			return err
		}
	}
	for _, name := range w.used.all() {
		namespace, name, err := cache.SplitMetaNamespaceKey(name)
		if err != nil {
			return err
		}
		w.enqueueChanged(types.NamespacedName{Namespace: namespace, Name: name})
	}
	return nil
}

func (w *changedNames) changed(obj any) error {
	o, ok := obj.(client.Object)
	if !ok {
		return nil
	}
	key := client.ObjectKeyFromObject(o)
	used, err := w.used.Contains(key)
	if used {
		w.enqueueChanged(key)
	}
	return err
}

func (w *changedNames) enqueueChanged(key types.NamespacedName) {
	w.mu.Lock()
	enqueue := w.enqueue
	w.mu.Unlock()
	if enqueue != nil {
		enqueue(Key{Resource: w.resource, NamespacedName: key})
	}
}
