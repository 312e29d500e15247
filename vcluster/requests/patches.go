// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"context"
	"io"
	"net/http"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/patches"
	"github.com/berth-dev/berth/vcluster/quantities"
)

type patchKey struct{}

// countPatch has the storage know what the request's patch is like, once its body has been read. It is for requests of the
// space's own controllers, too: they patch what tenants made.
func countPatch(r *http.Request) *http.Request {
	if r.Method != http.MethodPatch {
		return r
	}
	t := patches.Type(r.Header.Get("Content-Type"))
	counted := &countedPatch{ReadCloser: r.Body, patch: patches.New(t)}
	// The result of another patch is decoded, and checked then.
	counted.keeps = t == types.StrategicMergePatchType || t == types.ApplyYAMLPatchType
	r = r.WithContext(context.WithValue(r.Context(), patchKey{}, counted))
	r.Body = counted
	return r
}

type countedPatch struct {
	io.ReadCloser
	patch *patches.Patch
	held  int64 // bytes of the request's reservation
	keeps bool  // the text, which looks like the object that it changes
	text  []byte
}

func (b *countedPatch) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.patch.Add(p[:n])
	if b.keeps {
		b.text = append(b.text, p[:n]...)
	}
	return n, err
}

// AdmitPatch refuses to apply the request's patch, if it has one, to an object for which that takes too much work, and takes
// the memory for it from the request's reservation.
func AdmitPatch(ctx context.Context, object runtime.Object) error {
	p, ok := ctx.Value(patchKey{}).(*countedPatch)
	if !ok || object == nil {
		return nil
	}
	shape := patches.ShapeOf(object)
	if err := p.patch.Check(shape); err != nil {
		return err
	}
	if err := quantities.CheckDocument(p.text, requestedType(ctx, object)); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	more := p.patch.Memory(shape) - p.held
	if more <= 0 { // it is tried again, as the object has changed meanwhile
		return nil
	}
	p.held += more
	return bounds.ReservationOf(ctx).Grow(more)
}

// requestedType is an object's type in the version that its request is for, or nil for a custom resource.
func requestedType(ctx context.Context, object runtime.Object) reflect.Type {
	kinds, _, err := legacyscheme.Scheme.ObjectKinds(object)
	info, ok := request.RequestInfoFrom(ctx)
	if err != nil || !ok {
		return nil
	}
	return legacyscheme.Scheme.AllKnownTypes()[schema.GroupVersionKind{Group: info.APIGroup, Version: info.APIVersion, Kind: kinds[0].Kind}]
}
