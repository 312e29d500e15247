// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package roundtrip

import (
	"io"
	"net/http"
)

// Func is a function that makes requests.
type Func func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f Func) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// CloseBody closes the body of a request, as whoever makes one must.
func CloseBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// EndingBody calls end, which must do something once, when an answer has been read, or is closed.
type EndingBody struct {
	io.ReadCloser
	End func()
}

func (b *EndingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.End()
	}
	return n, err
}

// Close closes the body, and then calls End.
func (b *EndingBody) Close() error {
	defer b.End()
	return b.ReadCloser.Close()
}
