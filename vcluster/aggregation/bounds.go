// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/berth-dev/berth/vcluster/inside"
)

const (
	// maxAnswer is how many bytes the control plane itself reads of an answer.
	maxAnswer = 4 << 20
	// maxDocument is how many bytes a server may say of its resources: ten times
	// what all built-in APIs together are.
	maxDocument = 512 << 10
	// maxTokens is how many names, values and brackets these may be: decoded, a
	// short one takes as much memory as a long one.
	maxTokens = 32 << 10
)

var errTooLong = errors.New("the answer is too long")

// bounded fails the reading of an answer that the control plane itself reads, into
// memory that spaces share, when it is longer than maxAnswer.
type bounded struct{ *http.Transport }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.Transport.RoundTrip(r)
	if err == nil && inside.Is(r.Context()) {
		resp.Body = &boundedBody{resp.Body, maxAnswer}
	}
	return resp, err
}

// boundedBody fails once more than left bytes have been read.
type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", errTooLong, maxAnswer)
	}
	return n, err
}

// readDocument reads what a server says of its resources, which is JSON.
func readDocument(r io.Reader) ([]byte, error) {
	document, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return nil, err
	}
	if len(document) > maxDocument {
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLong, maxDocument)
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	for range maxTokens {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return document, nil
		} else if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: more than %d names and values", errTooLong, maxTokens)
}
