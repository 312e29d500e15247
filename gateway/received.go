// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
)

// received has what is read of a client take turns: the turn lasts until more is read, or sent, because whoever reads works on
// it until then.
//
// It is used for TLS handshakes; and while the process is busy, for connections that their handler has taken over, and for the
// bodies of requests whose own turn is over, such as uploads through a proxy.
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

// beginReceived begins the turn of a part that was received, in a process that is busy. Whoever reads finds out by itself that
// ctx has ended.
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

// maxObject is as much as an API server reads of a request to it. A client on a slow line must be able to send it in
// bodyTimeout, however busy the process is.
const maxObject = 3 << 20

// body is a request's, of which parts take turns once the request's own turn is over.
type body struct {
	received
	io.Closer

	read int
}

// pacedBody is the body of a request that is answered by w.
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
