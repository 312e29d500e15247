// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"io"
	"testing"
	"time"
)

// fullHost opens streams, and takes no data.
type fullHost struct{ *stuck }

func (h fullHost) Write(p []byte) (int, error) {
	if head, err := parseHead(p); err == nil && head.control {
		return len(p), nil
	}
	return h.stuck.Write(p)
}

func (h fullHost) Read([]byte) (int, error) {
	<-h.closed
	return 0, io.EOF
}

func (h fullHost) Done() <-chan struct{} { return h.closed }

// S5: TLS says goodbye to a pod under a deadline: one that does not read any more
// must not hold who leaves it.
func TestADeadlineEndsAWriteThatNobodyReads(t *testing.T) {
	host := fullHost{newStuck()}
	conn := Dial(host, 80)
	written := make(chan error, 1)
	for _, at := range []time.Time{time.Now().Add(time.Hour), {}} { // neither is meant any more
		if err := conn.SetWriteDeadline(at); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		_, err := conn.Write([]byte("hello"))
		written <- err
	}()
	<-host.begun
	select {
	case err := <-written:
		t.Fatalf("writing ends before its time: %v", err)
	default:
	}
	if err := conn.SetWriteDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-written:
		if err == nil {
			t.Error("it was written")
		}
	case <-time.After(testTimeout):
		t.Fatal("writing does not end")
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}
