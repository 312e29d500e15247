// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"context"
	"errors"
	"sync"
)

var errEnded = errors.New("the request has ended")

// Reservation is what one request has in use of a quantity. End gives all of it back. A nil reservation counts nothing. It
// is safe for concurrent use.
type Reservation struct {
	account  *Account
	quantity Quantity
	spare    int64
	whole    *Reservation // that this is a part of; nil if it is none

	mu    sync.Mutex
	held  int64
	ended bool
}

// Reserve returns a reservation that holds nothing. It may grow to spare bytes whatever else is in use: so that a space
// whose tenant has used all still does its own work.
func (a *Account) Reserve(q Quantity, spare int64) *Reservation {
	return &Reservation{account: a, quantity: q, spare: spare}
}

// Part returns a reservation of its own whose bytes are r's as well. Its End gives back what was taken by way of it, and
// nothing else, whoever uses r at the same time.
func (r *Reservation) Part() *Reservation {
	if r == nil {
		return nil
	}
	return &Reservation{account: r.account, quantity: r.quantity, whole: r}
}

// Grow notes that n more are in use, or returns an [*ExceededError]: that of a request that is too large even if it is the
// only one has its Alone set. It fails after End.
func (r *Reservation) Grow(n int64) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return errEnded // what would be read on is of a request that nobody waits for, and counted by nobody
	}
	switch {
	case r.whole != nil:
		if err := r.whole.Grow(n); err != nil {
			return err
		}
	case r.held+n <= r.spare:
		r.account.Add(r.quantity, n)
	default:
		if err := r.account.take(r.quantity, n); err != nil {
			err.Alone = r.held+n > err.Limit
			return err
		}
	}
	r.held += n
	return nil
}

// Shrink notes that n less are in use, or none if that is more than there is.
func (r *Reservation) Shrink(n int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.give(max(0, min(n, r.held)))
}

// give gives back n bytes of those that are held. The reservation is locked.
func (r *Reservation) give(n int64) {
	r.held -= n
	if r.whole != nil {
		r.whole.Shrink(n)
		return
	}
	r.account.Give(r.quantity, n)
}

// Limit of the quantity.
func (r *Reservation) Limit() int64 { return r.account.Limit(r.quantity) }

// Held is what is in use.
func (r *Reservation) Held() int64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// End gives back what is in use. No more can be used afterwards.
func (r *Reservation) End() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.give(r.held)
	r.ended = true
}

type reservationKey struct{}

// WithReservation returns a context whose work is counted by r.
func WithReservation(ctx context.Context, r *Reservation) context.Context {
	return context.WithValue(ctx, reservationKey{}, r)
}

// ReservationOf returns the reservation of a context, nil if it has none.
func ReservationOf(ctx context.Context) *Reservation {
	r, _ := ctx.Value(reservationKey{}).(*Reservation)
	return r
}
