// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/spdystream/spdy"
	"pgregory.net/rapid"
)

// S5: what is sent is what upstream's parser reads, block after block.
func TestHeadersAreReadAsTheyWereMeant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sent bytes.Buffer
		var h headers
		var want []http.Header
		for i := range rapid.IntRange(1, 5).Draw(t, "frames") {
			header, pairs := http.Header{}, [][2]string{}
			for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,9}`), 0, 4, rapid.ID).Draw(t, "names") {
				value := rapid.StringMatching(`[ -~]{0,40}`).Draw(t, "value")
				header.Add(name, value)
				pairs = append(pairs, [2]string{name, value})
			}
			want = append(want, header)
			sent.Write(controlFrame(spdy.TypeSynStream, fin, append(append(word(uint32(2*i+1)), 0, 0, 0, 0, 0, 0), h.encode(pairs...)...)))
		}
		framer, err := spdy.NewFramer(io.Discard, &sent)
		if err != nil {
			t.Fatal(err)
		}
		for i, header := range want {
			frame, err := framer.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			got, ok := frame.(*spdy.SynStreamFrame)
			if !ok || got.StreamId != spdy.StreamId(2*i+1) || got.CFHeader.Flags != spdy.ControlFlagFin {
				t.Fatalf("frame %d is %+v", i, frame)
			}
			if diff := cmp.Diff(header, got.Headers); diff != "" {
				t.Fatalf("headers -want +got:\n%s", diff)
			}
		}
	})
}

// S5: heads are told apart, and what cannot be is refused before it is read.
func TestHeadsAreParsed(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want head
		err  error
	}{
		"Data":            {in: "\x00\x00\x00\x05\x01\x00\x00\x02", want: head{stream: 5, flags: fin, length: 2}},
		"LargeData":       {in: "\x7f\xff\xff\xff\x00\xff\xff\xff", want: head{stream: 1<<31 - 1, length: 1<<24 - 1}},
		"Control":         {in: "\x80\x03\x00\x06\x00\x00\x00\x04", want: head{control: true, kind: spdy.TypePing, length: 4}},
		"LargeControl":    {in: "\x80\x03\x00\x01\x00\xff\xff\xff", err: errFrame},
		"OtherVersion":    {in: "\x80\x02\x00\x01\x00\x00\x00\x04", err: errFrame},
		"HTTP":            {in: "GET / HT", want: head{stream: 0x47455420, flags: '/', length: 0x204854}}, // of a stream that there is not
		"TLSClientHello!": {in: "\x96\x03\x01\x02\x00\x01\x00\x01", err: errFrame},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseHead([]byte(tc.in))
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(head{})); diff != "" || !errors.Is(err, tc.err) {
				t.Errorf("error is %v; head -want +got:\n%s", err, diff)
			}
		})
	}
}
