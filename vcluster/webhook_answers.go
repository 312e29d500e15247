// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"fmt"
	"io"
	"net/http"
)

// maxAnswer is how many bytes a webhook may answer: as its client reads all of it
// into the memory that spaces share. A list of objects to convert is one answer.
const maxAnswer = 16 << 20

// boundAnswers fails the reading of an answer that is longer than maxAnswer.
func boundAnswers(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		resp.Body = &boundedBody{resp.Body, maxAnswer}
		return resp, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// boundedBody fails once more than left bytes have been read.
type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("the webhook's answer is longer than %d bytes", maxAnswer)
	}
	return n, err
}
