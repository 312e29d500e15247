// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"io"
	"net/http"
)

// roundTripper is a function that makes requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// closeBody closes the body of a request, as whoever makes one must.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// endingBody calls end, which must do something once, when an answer has been read, or is closed.
type endingBody struct {
	io.ReadCloser
	end func()
}

func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
