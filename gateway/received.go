// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
)

// received makes reads from a client take turns. A turn lasts until the next read or write, because the reader
// processes the data until then.
//
// It is used for TLS handshakes. While the process is busy, it is also used for connections that their handler has
// hijacked, and for bodies of requests whose own turn is over, such as uploads through a proxy.
type received struct {
	io.Reader

	// begin waits for the turn. end is nil if no turn is necessary.
	begin func() (end func(), err error)
	last  atomic.Pointer[func()] // ends the turn
}

// Read implements [io.Reader]. It fails if waiting for the turn fails.
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
		begun := end // so that only this path allocates
		r.last.Store(&begun)
	}
	return n, err
}

// end ends the turn of the last read.
func (r *received) end() {
	if end := r.last.Swap(nil); end != nil {
		(*end)()
	}
}

// beginReceived waits for the turn of received data while the process is busy. It does not fail when ctx ends, because
// the reader notices that itself.
func beginReceived(ctx context.Context, busy func() bool, turn func(context.Context) (func(), error)) (end func(), err error) {
	if !busy() {
		return nil, nil
	}
	end, err = beginPart(ctx, turn, streamLease)
	if err != nil {
		return nil, nil
	}
	return end, nil
}

// maxObject is the maximum size of a request to an API server. A client on a slow line must be able to send it in
// bodyTimeout, however busy the process is.
const maxObject = 3 << 20

// body is a request body whose parts take turns after the turn of the request itself is over.
type body struct {
	received
	io.Closer

	read int
}

// pacedBody returns the body of a request whose response is written to w.
func pacedBody(r *http.Request, w *partsWriter) *body {
	b := &body{Closer: r.Body}
	b.received = received{Reader: r.Body, begin: func() (func(), error) {
		if !w.over.Load() || !w.long && b.read < maxObject {
			return nil, nil
		}
		return beginReceived(w.ctx, w.busy, w.turn)
	}}
	return b
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	n, err := b.received.Read(p)
	b.read += n
	return n, err
}

// Close implements [io.Closer].
func (b *body) Close() error {
	b.end()
	return b.Closer.Close()
}
