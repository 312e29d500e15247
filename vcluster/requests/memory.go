// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"context"
	"io"
	"net/http"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/inside"
	"github.com/berth-dev/berth/vcluster/refusal"
)

// ownBytes is what a request of Berth's own may hold, even if its tenant has used up the space's memory: as much as a
// page of usual objects. Controllers and syncer make few at once.
const ownBytes = 16 << 20

// AccountMemory has each request hold a reservation of the account until the end of its work, which is when the response
// is written, or later. What is read of the store, and of the request's body, is taken from it, and so is a long header.
func AccountMemory(a *bounds.Account, isLong apirequest.LongRunningRequestCheck, next http.Handler) http.Handler {
	if a == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, own := r.Context(), inside.Is(r.Context())
		reservation := a.Reserve(bounds.MemoryBytes, 0)
		if own {
			reservation = a.Reserve(bounds.MemoryBytes, ownBytes)
		}
		bounds.WorkOf(ctx).AtEnd(reservation.End)
		if n := headerBytes(r); !own && n > usualHeader {
			if err := reservation.Grow(n); err != nil {
				refusal.Serve(w, r, refusal.Status(err, refusal.NoResource, ""))
				return
			}
		}
		r = r.WithContext(withAnswerCost(bounds.WithReservation(ctx, reservation), newAnswerCost(r)))
		info, ok := apirequest.RequestInfoFrom(ctx)
		if ok && r.Body != nil && !isLong(r, info) {
			if !own {
				r.Body = &accountedBody{r.Body, newDocumentSize(r.Header.Get("Content-Type")), reservation}
			}
			r = countPatch(r)
		}
		next.ServeHTTP(w, r)
	})
}

// usualHeader is the most bytes of a header that are not accounted: those of usual clients are part of what a request takes anyway.
const usualHeader = 8 << 10

// headerField is what a field of a header takes besides its name and value, in bytes.
const headerField = 200

// headerBytes is how much memory the header of a request takes. A watch keeps it until it ends.
func headerBytes(r *http.Request) int64 {
	n := len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		for _, value := range values {
			n += headerField + len(name) + len(value)
		}
	}
	return int64(n)
}

// accountedBody takes what it reads from a reservation: what is in memory once it is decoded.
type accountedBody struct {
	io.ReadCloser
	size        DocumentSize
	reservation *bounds.Reservation
}

func (b *accountedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	size, refused := b.size.Add(p[:n])
	if refused != nil {
		return 0, refused
	}
	if exceeded := b.reservation.Grow(size); exceeded != nil {
		return 0, refusal.Status(exceeded, refusal.NoResource, "")
	}
	return n, err
}

// Reading returns a context by which objects are read that are held until the end of the reservation, and not until that of
// the request. Nothing else of the request is given back with them: the deletion of a collection lists meanwhile.
func Reading(ctx context.Context) (context.Context, *bounds.Reservation) {
	read := bounds.ReservationOf(ctx).Part()
	return bounds.WithReservation(ctx, read), read
}
