// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"sync/atomic"
)

// received has what is read of a client take turns: the turn lasts until more is read, or sent, because whoever reads works on
// it until then.
type received struct {
	io.Reader

	// begin waits for the turn. end is nil if what was read needs none.
	begin func() (end func(), err error)
	last  atomic.Pointer[func()] // ends the turn
}

// Read implements [io.Reader]. It fails if the turn does.
func (r *received) Read(p []byte) (int, error) {
	r.end()
	n, err := r.Reader.Read(p)
	if n == 0 {
		return n, err
	}
	end, beginErr := r.begin()
	if beginErr != nil {
		return 0, beginErr
	}
	if end != nil {
		begun := end // so that only this allocates
		r.last.Store(&begun)
	}
	return n, err
}

// end ends the turn of what was read last.
func (r *received) end() {
	if end := r.last.Swap(nil); end != nil {
		(*end)()
	}
}
