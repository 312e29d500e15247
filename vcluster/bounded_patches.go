// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/patches"
)

type patchKey struct{}

// countPatch has the storage know what the request's patch is like, once its body has been read. It is for requests of the
// space's own controllers, too: they patch what tenants made.
func countPatch(r *http.Request) *http.Request {
	if r.Method != http.MethodPatch {
		return r
	}
	p := patches.New(r.Header.Get("Content-Type"))
	if p == nil {
		return r
	}
	counted := &countedPatch{ReadCloser: r.Body, patch: p}
	r = r.WithContext(context.WithValue(r.Context(), patchKey{}, counted))
	r.Body = counted
	return r
}

type countedPatch struct {
	io.ReadCloser
	patch *patches.Patch
	held  int64 // bytes of the request's reservation
}

func (b *countedPatch) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.patch.Add(p[:n])
	return n, err
}

// admitPatch refuses to apply the request's patch, if it has one, to an object for which that takes too much work, and takes
// the memory for it from the request's reservation.
func admitPatch(ctx context.Context, object runtime.Object) error {
	p, ok := ctx.Value(patchKey{}).(*countedPatch)
	if !ok || object == nil {
		return nil
	}
	shape := patches.ShapeOf(object)
	if err := p.patch.Check(shape); err != nil {
		return err
	}
	more := p.patch.Memory(shape) - p.held
	if more <= 0 { // it is tried again, as the object has changed meanwhile
		return nil
	}
	p.held += more
	return bounds.ReservationOf(ctx).Grow(more)
}

func (b *boundedStorage) boundPatch(ctx context.Context, update storage.UpdateFunc) storage.UpdateFunc {
	return func(old runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if err := admitPatch(ctx, old); err != nil {
			return nil, nil, err
		}
		return update(old, response)
	}
}
