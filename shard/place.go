// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/shard/crashlog"
)

// state is where a space is on its round.
type state uint8

const (
	asleep   state = iota // its file and its place
	queued                // to be started in its turn
	starting              // a control plane and a syncer are made
	running               // it serves
	stopping              // to sleep, or to leave
)

// place is a space's in a shard. While the space sleeps it is all that there is
// of it in memory, so what is large belongs into Space. All fields but the first
// two and changed are guarded by the shard's mutex.
type place struct {
	name string
	tell func(space string) // that the status is another than before

	state      state
	since      time.Time     // of the state
	readySince time.Time     // of the condition Ready
	turn       chan struct{} // closed with the next change of state; nil if nobody waits

	wake  *wake              // awaited: queued, starting, or stopping and wanted again
	later bool               // queued behind those that somebody waits for
	abort context.CancelFunc // starting: gives the start up
	space *Space             // running and stopping

	cause       cause     // of the start
	wanted      time.Time // when it was
	touched     bool      // the next start is for a request
	requests    int       // under way, from outside
	held        int       // requests that wait for the space
	lastRequest time.Time // when the last came or was answered; zero if none did since the space woke by itself

	tryingSleep bool        // trySleep is under way
	busyUntil   time.Time   // before then it is not asked again
	changed     atomic.Bool // a host object changed since it was last asked
	unwatch     func()      // asleep: ends the watch that sets changed
	// asleep, if the space follows the host's nodes: ends the watch of these, which sets changed, too
	unwatchNodes func()
	timer        time.Time // asleep: when it wants to act by itself; zero if never

	packed   bool // asleep: what is held of it in memory has been made anew
	prepared bool // the host has what it stands on
	started  bool // it has run here
	failure  error
	failures int       // in a row
	retry    time.Time // when it is tried again

	suspect *crashlog.Held // it may have ended the process before; nil if it is not held back
	hurried bool           // it is started before the other suspects
	slow    bool           // its last start took long; starting: it takes long
	newSlow bool           // starting: it turned out to be slow now
	gaveWay bool           // starting: it is given up for others

	evicted error // running or stopping: why it is put to sleep at once
	removed bool  // it leaves once it has stopped
	stopErr error
}

// cause is why a space is started, for the log.
type cause string

const (
	byRequest cause = "request"
	byTimer   cause = "timer"
	byHost    cause = "host"  // an object of the space changed there
	byRetry   cause = "retry" // after a failure
	byWarmUp  cause = "warm-up"
	byRestart cause = "restart" // with new keys
)

// set changes the state, and wakes who waits for that.
func (p *place) set(to state, now time.Time) {
	ready := p.ready()
	p.state, p.since = to, now
	if p.ready() != ready || p.readySince.IsZero() {
		p.readySince = now
	}
	p.turned()
	p.tell(p.name)
}

func (p *place) turned() {
	if p.turn != nil {
		close(p.turn)
		p.turn = nil
	}
}

// next is closed when the state changes.
func (p *place) next() <-chan struct{} {
	if p.turn == nil {
		p.turn = make(chan struct{})
	}
	return p.turn
}

// release ends the watch on a sleeping space's host objects.
func (p *place) release() {
	if p.unwatch != nil {
		p.unwatch()
		p.unwatch = nil
	}
	if p.unwatchNodes != nil {
		p.unwatchNodes()
		p.unwatchNodes = nil
	}
	p.timer = time.Time{}
}

// resolve tells those who wait for the space how the wake went.
func (p *place) resolve(err error) {
	if p.wake != nil {
		p.wake.err = err
		close(p.wake.done)
		p.wake = nil
	}
}

// wake is a start that is wanted, shared by all who want it.
type wake struct {
	done chan struct{}
	err  error // once done is closed
}

func newWake() *wake { return &wake{done: make(chan struct{})} }

// ended is a wake that has ended already.
func endedWake(err error) *wake {
	w := newWake()
	w.err = err
	close(w.done)
	return w
}
