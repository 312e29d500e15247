// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/berth-dev/berth/bounds"
)

// How many bytes a webhook may answer: as its client reads all of it into the memory that spaces share.
const (
	// A list of objects to convert is one answer.
	maxConverted = 16 << 20
	// A patch makes an object at most as much larger, and objects are no larger.
	maxAdmitted = 3 << 20
)

// boundAnswers fails the reading of an answer that is longer than limit.
func boundAnswers(limit int) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			resp.Body = &boundedBody{resp.Body, limit, limit, &answerSize{}, bounds.ReservationOf(r.Context())}
			return resp, nil
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// boundedBody fails once more than limit bytes have been read, or the request that the webhook is asked for may hold no more.
type boundedBody struct {
	io.ReadCloser
	limit, left int
	size        documentSize
	reservation *bounds.Reservation
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("the webhook's answer is longer than %d bytes", b.limit)
	}
	size, refused := b.size.add(p[:n])
	if refused == nil {
		refused = b.reservation.Grow(size)
	}
	if refused != nil {
		return 0, fmt.Errorf("read the webhook's answer: %w", refused)
	}
	return n, err
}

// answerSize counts the elements of a JSON document, and those of JSON documents that its strings hold in base64, as an
// admission webhook's answer holds a patch.
type answerSize struct {
	json  jsonSize
	patch jsonSize // of the string that is being read
	bits  uint32
	chars int
	plain bool // the string is not base64
	dense bool // the string has escapes, and is taken for the worst
}

// denseBytes is what a base64 character may take.
const denseBytes = (elementBytes + textBytes) * 3 / 4

func (d *answerSize) add(p []byte) (int64, error) {
	var size int64
	for i, c := range p {
		was := d.json
		n, _ := d.json.add(p[i : i+1])
		size += n
		switch {
		case !was.inString:
			if d.json.inString {
				*d = answerSize{json: d.json}
			}
		case !d.json.inString, d.json.escaped, d.plain: // the string's end, the first of an escape, or no base64
		case was.escaped && c != '/', d.dense:
			d.dense = true
			size += denseBytes
		default:
			size += d.decode(c)
		}
	}
	return size, nil
}

const base64Alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// decode takes a character of a string.
func (d *answerSize) decode(c byte) int64 {
	v := strings.IndexByte(base64Alphabet, c)
	if c == '=' {
		v = 0
	}
	if v < 0 {
		d.plain = true
		return 0
	}
	d.bits = d.bits<<6 | uint32(v) //nolint:gosec // it is less than 64
	if d.chars++; d.chars%4 != 0 {
		return 0
	}
	n, _ := d.patch.add([]byte{byte(d.bits >> 16), byte(d.bits >> 8), byte(d.bits)}) //nolint:gosec // its lowest byte
	return n
}
