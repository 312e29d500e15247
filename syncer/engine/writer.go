// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/hostcache"
)

// Writer writes to the host as a space's account, and remembers the writes that the shared watches have not delivered
// yet.
type Writer struct {
	client.Client
	Host *hostcache.Host

	mu      sync.Mutex
	written map[string]uint64              // the latest resource version of each resource
	deleted map[hostcache.Object]types.UID // objects that may still be in the watches
	tidied  int                            // size of deleted after the last tidy
	holds   map[hostcache.Object]*hold
}

// NewWriter returns a writer that uses a client of the space's account.
func NewWriter(c client.Client, host *hostcache.Host) *Writer {
	return &Writer{Client: c, Host: host, written: map[string]uint64{}, deleted: map[hostcache.Object]types.UID{}, holds: map[hostcache.Object]*hold{}}
}

// Create creates an object on the host, and updates obj with the result.
func (w *Writer) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return w.wroteUnless(w.Client.Create(ctx, obj, opts...), obj)
}

// Update updates an object on the host, and obj with the result.
func (w *Writer) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return w.wroteUnless(w.Client.Update(ctx, obj, opts...), obj)
}

// UpdateVia updates an object with one of its subresources, and obj with the result.
func (w *Writer) UpdateVia(ctx context.Context, subresource string, obj client.Object) error {
	return w.wroteUnless(w.Client.SubResource(subresource).Update(ctx, obj), obj)
}

// PatchStatus patches an object's status, and updates obj with the result.
func (w *Writer) PatchStatus(ctx context.Context, obj client.Object, patch client.Patch) error {
	return w.wroteUnless(w.Client.Status().Patch(ctx, obj, patch), obj)
}

// Delete deletes an object on the host.
func (w *Writer) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	err := w.Client.Delete(ctx, obj, opts...)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.deleted[hostcache.Object{Resource: resourceOf(w.Host, obj), NamespacedName: client.ObjectKeyFromObject(obj)}] = obj.GetUID()
		if len(w.deleted) > 2*w.tidied+100 {
			w.tidy()
		}
	}
	return err
}

// seen reports whether the host's watches have delivered all writes.
func (w *Writer) seen() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tidy()
	for resource, wrote := range w.written {
		if f := w.Host.Router(resource); f == nil || f.Delivered.Load() >= wrote { // one that is no longer watched shows nothing
			delete(w.written, resource)
		}
	}
	return len(w.deleted)+len(w.written) == 0
}

// tidy removes deletions that the watches have delivered. w.mu must be held.
func (w *Writer) tidy() {
	for o, uid := range w.deleted {
		there, ok := hostcache.Get[client.Object](w.Host, o.Resource, o.Namespace, o.Name)
		if !ok || there.GetUID() != uid || there.GetDeletionTimestamp() != nil {
			delete(w.deleted, o)
			if f := w.Host.Router(o.Resource); f != nil {
				w.written[o.Resource] = max(w.written[o.Resource], f.Reached.Load())
			}
		}
	}
	w.tidied = len(w.deleted)
}

// wroteUnless records the write of obj, unless it failed.
func (w *Writer) wroteUnless(err error, obj client.Object) error {
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wrote(resourceOf(w.Host, obj), obj.GetResourceVersion())
	}
	return err
}

// wrote records a write. w.mu must be held.
func (w *Writer) wrote(resource, resourceVersion string) {
	if v := hostcache.Version(resourceVersion); v > w.written[resource] {
		w.written[resource] = v
	}
}

// resourceOf returns the resource, as in keys, of a host object. That of a declaration that has ended has none, and nothing waits for it.
func resourceOf(host *hostcache.Host, obj client.Object) string {
	name, ok := host.ResourceOf(obj)
	if _, custom := obj.(*unstructured.Unstructured); !ok && !custom {
		panic(fmt.Sprintf("a syncer writes %T to the host, and no watch shows it", obj))
	}
	return name
}
