// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import "io"

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
