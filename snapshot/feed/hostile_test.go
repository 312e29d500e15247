// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package feed_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/snapshot/feed"
	"github.com/berth-dev/berth/snapshot/segment"
)

// takenOver is a client of a process that answers each request with what answer writes.
func takenOver(answer func(w io.Writer)) feed.Client {
	return feed.NewClient(control.NewClientTo("nowhere", 64<<10, func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			if _, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
				answer(theirs)
			}
		}()
		return ours, nil
	}))
}

const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"

// S3: a process that sends without end, or a byte at a time, is given up within seconds.
func TestHostileAnAnswerIsBound(t *testing.T) {
	var sent int
	for name, answer := range map[string]func(w io.Writer){
		"nothing": func(io.Writer) { <-time.After(time.Hour) },
		"without end": func(w io.Writer) {
			_, err := io.WriteString(w, head)
			for ; err == nil; sent += 64 << 10 {
				_, err = w.Write(make([]byte, 64<<10))
			}
		},
		"a byte at a time": func(w io.Writer) {
			_, err := io.WriteString(w, head+`{"last":`)
			for err == nil {
				<-time.After(time.Second)
				_, err = w.Write([]byte("1"))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent = 0
				c := takenOver(answer)
				began := time.Now()
				object, err := c.Rows(t.Context(), 1, 1, 1)
				if err == nil || len(object) > segment.MaxObject+1 || time.Since(began) > 10*time.Second || sent > 2*segment.MaxObject {
					t.Errorf("rows: %d bytes of %d after %s: %v", len(object), sent, time.Since(began), err)
				}
				began = time.Now()
				if state, err := c.Watch(t.Context(), feed.Seen{}); err == nil || time.Since(began) > feed.Wait+5*time.Second {
					t.Errorf("the state: %+v after %s: %v", state, time.Since(began), err)
				}
				<-time.After(2 * time.Hour) // of the bubble's clock: the process finds that it is given up
			})
		})
	}
}

// S3: what a process says of its store can be true.
func TestHostileAStateIsChecked(t *testing.T) {
	for said, passes := range map[string]bool{
		`{"opening":1,"last":5,"compacted":5}`: true,
		`{}`:                                   true,
		`{"last":-1}`:                          false,
		`{"last":9223372036854775807}`:         false,
		`{"last":5,"compacted":6}`:             false,
		`{"last":5,"compacted":-1}`:            false,
		`{"opening":-1}`:                       false,
		`[]`:                                   false,
		`{"x":"` + strings.Repeat("x", 70<<10) + `"`: false,
	} {
		c := takenOver(func(w io.Writer) { _, _ = io.WriteString(w, head+said) })
		if _, err := c.Watch(t.Context(), feed.Seen{}); (err == nil) != passes {
			t.Errorf("%.40s: %v", said, err)
		}
	}
}

// S3: a refusal is one of a process, whatever it says, and rows are gone if it says so.
func TestAProcessMayRefuseRows(t *testing.T) {
	for code, gone := range map[int]bool{http.StatusGone: true, http.StatusNotFound: false, http.StatusInternalServerError: false} {
		c := takenOver(func(w io.Writer) {
			body := fmt.Sprintf(`{"kind":"Status","status":"Failure","message":"no \u001b[31m","reason":"Expired","code":%d}`, code)
			if !gone {
				body = strings.ReplaceAll(body, "Expired", "NotFound")
			}
			_, _ = fmt.Fprintf(w, "HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s", code, len(body), body)
		})
		_, err := c.Rows(t.Context(), 1, 1, 1)
		if err == nil || errors.Is(err, kine.ErrRowsGone) != gone || strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("with the code %d: %v", code, err)
		}
	}
}
