// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"fmt"
	"io"
	"net/http"

	"github.com/berth-dev/berth/bounds"
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
		resp.Body = &boundedBody{resp.Body, maxAnswer, newDocumentSize(""), bounds.ReservationOf(r.Context())}
		return resp, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// boundedBody fails once more than left bytes have been read, or the request that the webhook is asked for may hold no more.
type boundedBody struct {
	io.ReadCloser
	left        int
	size        *documentSize
	reservation *bounds.Reservation
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("the webhook's answer is longer than %d bytes", maxAnswer)
	}
	if err := b.reservation.Grow(b.size.add(p[:n])); err != nil {
		return 0, fmt.Errorf("read the webhook's answer: %w", err)
	}
	return n, err
}
