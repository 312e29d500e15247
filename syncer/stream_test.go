// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

var errBroken = errors.New("the connection is broken")

// streams are the watches under way through a wire: they can be broken, and
// made to lag.
type streams struct {
	mu   sync.Mutex
	open map[*stream]struct{}
}

// stream hands on what it reads when hold lets it.
type stream struct {
	body   io.ReadCloser
	chunks chan chunk
	ended  chan struct{}
	end    func()
	rest   []byte
	hold   func(arrived time.Time, ended <-chan struct{})
}

type chunk struct {
	data    []byte
	err     error
	arrived time.Time
}

// through makes a watch's response one of the streams. hold is called with the
// time when a chunk arrived and returns when it may go on, or the stream ended.
func (s *streams) through(resp *http.Response, hold func(arrived time.Time, ended <-chan struct{})) *http.Response {
	st := &stream{body: resp.Body, chunks: make(chan chunk, 10000), ended: make(chan struct{}), hold: hold}
	st.end = sync.OnceFunc(func() { close(st.ended) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*stream]struct{}{}
	}
	s.open[st] = struct{}{}
	go st.read()
	resp.Body = st
	return resp
}

// breakAll ends all streams as a network does that fails.
func (s *streams) breakAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.open {
		st.end()
		delete(s.open, st)
	}
}

// read takes chunks as they come, so that the server never waits. It ends with
// the body.
func (st *stream) read() {
	for {
		buffer := make([]byte, 64<<10)
		n, err := st.body.Read(buffer)
		select {
		case st.chunks <- chunk{buffer[:n], err, time.Now()}:
		case <-st.ended:
			return
		}
		if err != nil {
			return
		}
	}
}

// Read implements [io.Reader].
func (st *stream) Read(p []byte) (int, error) {
	if len(st.rest) == 0 {
		select {
		case c := <-st.chunks:
			if st.hold != nil {
				st.hold(c.arrived, st.ended)
			}
			if len(c.data) == 0 {
				return 0, c.err
			}
			st.rest = c.data
		case <-st.ended:
		}
	}
	select {
	case <-st.ended:
		return 0, errBroken
	default:
	}
	n := copy(p, st.rest)
	st.rest = st.rest[n:]
	return n, nil
}

// Close implements [io.Closer].
func (st *stream) Close() error {
	st.end()
	return st.body.Close()
}

// lag holds each chunk back for a while.
func lag(by time.Duration) func(time.Time, <-chan struct{}) {
	return func(arrived time.Time, ended <-chan struct{}) {
		timer := time.NewTimer(time.Until(arrived.Add(by)))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ended:
		}
	}
}

// until holds chunks back until released is closed.
func until(released <-chan struct{}) func(time.Time, <-chan struct{}) {
	return func(_ time.Time, ended <-chan struct{}) {
		select {
		case <-released:
		case <-ended:
		}
	}
}
