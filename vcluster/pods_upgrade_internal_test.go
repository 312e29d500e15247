// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// T7: a client that announces large frames has no memory set aside for them.
func TestFramesOfStreamsAreSmall(t *testing.T) {
	data := strings.Repeat("0123456789abcdef", maxData/16)
	for name, tc := range map[string]struct {
		in, want string
		err      error
	}{
		"Small":        {in: "\x00\x00\x00\x05\x01\x00\x00\x02hi", want: "\x00\x00\x00\x05\x01\x00\x00\x02hi"},
		"Empty":        {in: "\x00\x00\x00\x05\x01\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x01x", want: "\x00\x00\x00\x05\x01\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x01x"},
		"Control":      {in: "\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01", want: "\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01"},
		"LargeControl": {in: "\x80\x03\x00\x01\x00\xff\xff\xff" + data, err: errFrame},
		"Large": {
			in:   "\x00\x00\x00\x05\x01\x00\x80\x01" + data + data + "x" + "\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01",
			want: "\x00\x00\x00\x05\x00\x00\x40\x00" + data + "\x00\x00\x00\x05\x00\x00\x40\x00" + data + "\x00\x00\x00\x05\x01\x00\x00\x01x" + "\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			_, err := io.Copy(&out, &frames{from: strings.NewReader(tc.in)})
			if !errors.Is(err, tc.err) {
				t.Errorf("error is %v, want %v", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("frames -want +got:\n%s", diff)
			}
		})
	}
}
