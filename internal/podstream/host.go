// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/moby/spdystream/spdy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

const (
	// maxSaid bounds what a host may say of one failure, in bytes.
	maxSaid = 64 << 10
	// lost is said for a host that does not say how a call went.
	lost = "the connection to the container has ended"
	// pairing is how long container runtimes keep a stream of port forwarding whose
	// other one does not come, and a goroutine for it, reset or not.
	pairing = 30 * time.Second
)

// stream is a part of a call that the host knows of.
type stream struct {
	id      spdy.StreamId
	kind    string // one of corev1.StreamType…
	port    uint16 // of port forwarding
	replied bool   // the client knows that it is open
	said    []byte // of an error stream, that is not told yet
	told    bool   // the client has been

	clientDone, hostDone bool // will say no more
}

// host is the host's end of a call. One goroutine sends to it, and another runs it.
type host struct {
	to   io.Writer
	from *bufio.Reader

	headers headers
	verdict bool   // it says of a success, too, that it was one
	out     []byte // a buffer for a frame
	deaf    bool   // what is sent to it is not read any more

	mu      sync.Mutex
	streams map[spdy.StreamId]*stream
	clock   clock.PassiveClock
	resets  []time.Time // of streams that the host may keep yet, first to last
}

func newHost(conn io.ReadWriter) *host {
	return &host{
		to: conn, from: bufio.NewReader(conn), out: make([]byte, headSize+maxPart),
		streams: map[spdy.StreamId]*stream{}, clock: clock.RealClock{},
	}
}

// write sends a frame. A host that has gone is not an end: it may have said more
// than was read of it yet.
func (h *host) write(b []byte) {
	if h.deaf {
		return
	}
	_, err := h.to.Write(b)
	h.deaf = err != nil
}

// open opens a stream.
func (h *host) open(s *stream, request string) {
	h.mu.Lock()
	h.streams[s.id] = s
	h.mu.Unlock()
	pairs := [][2]string{{"streamtype", s.kind}}
	if s.port != 0 {
		pairs = append(pairs, [2]string{"port", strconv.Itoa(int(s.port))})
	}
	if request != "" {
		pairs = append(pairs, [2]string{"requestid", request})
	}
	flags := byte(0)
	if s.clientDone {
		flags = fin
	}
	body := append(word(uint32(s.id)), 0, 0, 0, 0, 0, 0) // of no other stream, and first in line
	h.write(controlFrame(spdy.TypeSynStream, flags, append(body, h.headers.encode(pairs...)...)))
}

// data sends what from has, up to length bytes, on a stream, and if it has them
// all the end of it, if flags say so. If there is no such stream, or it has
// ended, it sends none.
func (h *host) data(id spdy.StreamId, flags byte, from io.Reader, length int) error {
	for {
		part := h.out[headSize:][:min(length, maxPart)]
		n, err := io.ReadFull(from, part)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			return err
		}
		length -= n
		h.part(id, n, length == 0 && flags&fin != 0)
		if length == 0 || err != nil {
			return nil
		}
	}
}

func (h *host) part(id spdy.StreamId, n int, last bool) {
	h.mu.Lock()
	s := h.streams[id]
	open := s != nil && !s.clientDone
	if open && last {
		s.clientDone = true
		h.forget(s)
	}
	h.mu.Unlock()
	if open && (n > 0 || last) {
		putDataHead(h.out, id, last, n)
		h.write(h.out[:headSize+n])
	}
}

// reset ends a stream of the client's.
func (h *host) reset(id spdy.StreamId) {
	h.mu.Lock()
	s, open := h.streams[id]
	delete(h.streams, id)
	if open && !s.hostDone {
		h.resets = append(h.resets, h.clock.Now())
	}
	h.mu.Unlock()
	if open {
		h.write(resetFrame(id, spdy.Cancel))
	}
}

func (h *host) ping(id uint32) { h.write(controlFrame(spdy.TypePing, 0, word(id))) }

// forget drops a stream that has ended on both sides. The caller holds the lock.
func (h *host) forget(s *stream) {
	if s.clientDone && s.hostDone {
		delete(h.streams, s.id)
	}
}

// lookup returns an open stream of the host's, and ends it if flags say so.
func (h *host) lookup(id spdy.StreamId, flags byte) *stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.streams[id]
	if s == nil || s.hostDone {
		return nil
	}
	if flags&fin != 0 {
		s.hostDone = true
		h.forget(s)
	}
	return s
}

// size is how many streams the host has, as far as can be known: those that are
// open, and those that were reset of late. Who opens none beyond a bound has no
// more than that many of both.
func (h *host) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	past := h.clock.Now().Add(-pairing)
	kept := slices.IndexFunc(h.resets, past.Before)
	if kept < 0 {
		kept = len(h.resets)
	}
	h.resets = slices.Delete(h.resets, 0, kept)
	return len(h.streams) + len(h.resets)
}

// sink is where what the host says goes: a client, in its protocol. Errors are
// the client's, which has left then, or has been told all.
type sink interface {
	// opened tells that the host has taken a stream.
	opened(s *stream) error
	// data has space for a header before what the stream says; ends if it was the last.
	data(s *stream, p []byte, ends bool) error
	// said is all that the host says of a failure.
	said(s *stream, text []byte) error
	// ended tells that the host has given a stream up.
	ended(s *stream) error
	// pinged is the answer to a client's ping.
	pinged(id uint32) error
}

// run gives the client what the host says, until either ends.
func (h *host) run(to sink) {
	buf := make([]byte, headSize+maxPart)
	for err := error(nil); err == nil; {
		err = h.next(buf, to)
	}
	h.mu.Lock()
	all := slices.Collect(maps.Values(h.streams))
	h.mu.Unlock()
	for _, s := range all {
		if !s.hostDone {
			_ = h.opened(s, to)
			_ = h.tell(s, to, true)
		}
	}
}

func (h *host) next(buf []byte, to sink) error {
	head, err := readHead(h.from)
	if err != nil {
		return err
	}
	if head.control {
		return h.control(head, to)
	}
	s := h.lookup(head.stream, head.flags)
	if s == nil {
		_, err := h.from.Discard(head.length)
		return err
	}
	for {
		part := buf[headSize:][:min(head.length, maxPart)]
		if _, err := io.ReadFull(h.from, part); err != nil {
			return err
		}
		head.length -= len(part)
		last := head.length == 0 && head.flags&fin != 0
		if s.kind == corev1.StreamTypeError {
			err = h.hear(s, part, last, to)
		} else {
			err = to.data(s, buf[:headSize+len(part)], last)
		}
		if err != nil || head.length == 0 {
			return err
		}
	}
}

// hear keeps what the host says of a failure until it has said it all: names of
// the host's may be cut in two.
func (h *host) hear(s *stream, part []byte, last bool, to sink) error {
	s.said = append(s.said, part[:min(len(part), maxSaid-len(s.said))]...)
	if !last {
		return nil
	}
	if err := h.tell(s, to, h.verdict); err != nil {
		return err
	}
	return to.data(s, make([]byte, headSize), true)
}

// tell gives the client what the host has said, or had begun to say, of a failure,
// or that it should have said something: clients take silence for a success.
func (h *host) tell(s *stream, to sink, owed bool) error {
	if len(s.said) == 0 && owed && s.kind == corev1.StreamTypeError {
		s.said = []byte(lost)
	}
	if len(s.said) == 0 || s.told {
		return nil
	}
	s.told = true
	return to.said(s, s.said)
}

func (h *host) control(head head, to sink) error {
	body := make([]byte, max(head.length, headSize))
	if _, err := io.ReadFull(h.from, body[:head.length]); err != nil {
		return err
	}
	id := binary.BigEndian.Uint32(body)
	switch head.kind {
	case spdy.TypeGoAway:
		return io.EOF
	case spdy.TypePing:
		return to.pinged(id)
	case spdy.TypeSynReply:
		if s := h.lookup(spdy.StreamId(id), head.flags); s != nil {
			return h.opened(s, to)
		}
	case spdy.TypeRstStream:
		if s := h.lookup(spdy.StreamId(id), 0); s != nil {
			return h.ended(s, to)
		}
	}
	return nil // windows and settings are those of a connection that ends here
}

func (h *host) opened(s *stream, to sink) error {
	if s.replied {
		return nil
	}
	s.replied = true
	return to.opened(s)
}

// ended tells of a stream's end. A container runtime may find a port closed, and
// reset the stream to it, before it has said that the stream is open: clients are
// told the one before the other, or they would never ask why.
func (h *host) ended(s *stream, to sink) error {
	if err := h.opened(s, to); err != nil {
		return err
	}
	if err := h.tell(s, to, h.verdict); err != nil {
		return err
	}
	h.mu.Lock()
	delete(h.streams, s.id)
	h.mu.Unlock()
	return to.ended(s)
}
