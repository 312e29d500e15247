// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds

import "math"

// Promise takes n of a quantity ahead of [Account.TakePromised] by the same work, and gives back at the work's end what that
// did not take: so that a request is refused before it does something elsewhere. It takes the place of an earlier promise
// to the work. Without work or account it does nothing.
func (a *Account) Promise(w *Work, q Quantity, n int64) error {
	if a == nil || w == nil {
		return nil
	}
	a.Give(q, w.redeem(q, math.MaxInt64))
	if n <= 0 {
		return nil
	}
	if err := a.Take(q, n); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.promised == nil {
		w.promised = map[Quantity]int64{}
		w.atEnd = append(w.atEnd, func() {
			for q := range quantities {
				a.Give(q, w.redeem(q, math.MaxInt64))
			}
		})
	}
	w.promised[q] = n
	return nil
}

// TakePromised is Take for a work, which may have been promised some of it.
func (a *Account) TakePromised(w *Work, q Quantity, n int64) error {
	promised := w.redeem(q, n)
	if promised == n {
		return nil
	}
	if err := a.Take(q, n-promised); err != nil {
		a.Give(q, promised)
		return err
	}
	return nil
}

// redeem returns how much of n was promised to the work. It is no longer.
func (w *Work) redeem(q Quantity, n int64) int64 {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n = min(n, w.promised[q])
	if n > 0 {
		w.promised[q] -= n
	}
	return n
}
