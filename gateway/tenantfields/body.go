// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantfields

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// bodyPart is how much of a request's body is read at once.
const bodyPart = 4 << 10

// body is a request body without metadata.tenant. Reading fails if that names another tenant: the API server then never gets
// the whole object, and does nothing.
type body struct {
	io.Closer
	source  io.Reader
	remover *remover
	part    []byte
	out     []byte // not read yet
	err     error
	refused atomic.Pointer[error] // a proxy may read the body in another goroutine
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	for len(b.out) == 0 && b.err == nil {
		n, err := b.source.Read(b.part)
		out, refused := b.remover.remove(b.part[:n])
		switch {
		case refused != nil:
			b.refused.Store(&refused)
			b.out, b.err = nil, apierrors.NewBadRequest(refused.Error())
			return 0, b.err
		case errors.Is(err, io.EOF):
			b.out, b.err = b.remover.finish(), err
		default:
			b.out, b.err = out, err
		}
	}
	n := copy(p, b.out)
	if b.out = b.out[n:]; len(b.out) > 0 {
		return n, nil
	}
	return n, b.err
}

// why returns why the body was refused, if it was.
func (b *body) why() error {
	if refused := b.refused.Load(); refused != nil {
		return *refused
	}
	return nil
}

// form is how a request body can have metadata.tenant.
type form uint8

const (
	noForm     form = iota // it can't have any
	objectForm             // as a field of a JSON object
	patchForm              // as the path of an operation of a JSON patch
)

// formOf returns the form of a request's body.
func formOf(r *http.Request) form {
	if r.Body == nil || r.ContentLength == 0 {
		return noForm
	}
	contentType := r.Header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(contentType)
	if r.Method == http.MethodPatch { // where API servers only look at what is before the parameters
		kind, _, _ = strings.Cut(contentType, ";")
		err = nil
	}
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return noForm
	case contentType == "":
		return objectForm // the default of API servers
	case err != nil:
		return noForm
	}
	switch types.PatchType(kind) {
	case "application/json", types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType: // which clients send as JSON, too
		return objectForm
	case types.JSONPatchType:
		return patchForm
	}
	return noForm
}
