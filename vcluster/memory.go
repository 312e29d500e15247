// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"io"
	"net/http"
	"strings"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/inside"
)

const (
	// ownBytes is what a request of Berth's own may hold, even if its tenant has used up the space's memory: as much as a
	// page of usual objects. Controllers and syncer make few at once.
	ownBytes = 16 << 20

	// elementBytes is about what an element of a JSON document takes once it is decoded, twice, as an API server holds the
	// object in two versions. A container that is left empty, which takes three bytes in a document, has 700.
	elementBytes = 1600
	// textBytes is what any other byte of a document takes: as it is read, decoded, and encoded.
	textBytes = 3
	// opaqueBytes is what a byte takes of a document whose elements are not counted.
	opaqueBytes = 100
)

// accountMemory has each request hold a reservation of the account until its handler has returned, which is when the
// response is written. What is read of the store, and of the request's body, is taken from it.
func accountMemory(a *bounds.Account, isLong apirequest.LongRunningRequestCheck, next http.Handler) http.Handler {
	if a == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, own := r.Context(), inside.Is(r.Context())
		reservation := a.Reserve(bounds.MemoryBytes, 0)
		if own {
			reservation = a.Reserve(bounds.MemoryBytes, ownBytes)
		}
		defer reservation.End()
		r = r.WithContext(bounds.WithReservation(ctx, reservation))
		info, ok := apirequest.RequestInfoFrom(ctx)
		if !own && ok && r.Body != nil && !isLong(r, info) {
			r.Body = &accountedBody{r.Body, newDocumentSize(r.Header.Get("Content-Type")), reservation}
		}
		next.ServeHTTP(w, r)
	})
}

// accountedBody takes what it reads from a reservation: what is in memory once it is decoded.
type accountedBody struct {
	io.ReadCloser
	size        *documentSize
	reservation *bounds.Reservation
}

func (b *accountedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if exceeded := b.reservation.Grow(b.size.add(p[:n])); exceeded != nil {
		return 0, asStatus(exceeded, noResource, "")
	}
	return n, err
}

// documentSize estimates what a document will take once it is decoded, while it is read.
type documentSize struct {
	opaque            bool
	inString, escaped bool
}

func newDocumentSize(contentType string) *documentSize {
	return &documentSize{opaque: strings.Contains(contentType, "protobuf") || strings.Contains(contentType, "yaml")}
}

// add returns by how much the estimate grows with more of the document.
func (d *documentSize) add(p []byte) int64 {
	if d.opaque {
		return opaqueBytes * int64(len(p))
	}
	size := textBytes * int64(len(p))
	for _, c := range p {
		switch {
		case d.escaped:
			d.escaped = false
		case d.inString:
			d.escaped, d.inString = c == '\\', c != '"'
		case c == '"':
			d.inString = true
		case c == ',', c == '{', c == '[':
			size += elementBytes
		}
	}
	return size
}
