// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/shard/crashlog"
)

// state is the state of a space in its cycle.
type state uint8

const (
	asleep   state = iota // nothing of it runs
	queued                // waits to be started
	starting              // its control plane and syncer are being created
	running               // it serves
	stopping              // goes to sleep, or is being removed
)

// place is the entry of a space in a shard. While the space sleeps, it is all that is in memory, so large data belongs
// in Space. The shard's mutex guards all fields except the first two and changed.
type place struct {
	name string
	tell func(space string) // called when the status has changed

	state      state
	since      time.Time // of the state
	readySince time.Time // of the condition Ready
	wasReady   metav1.ConditionStatus
	turn       chan struct{} // closed with the next change of state; nil if nobody waits

	wake  *wake              // awaited: queued, starting, or stopping and wanted again
	later bool               // in the queue behind spaces that somebody waits for
	abort context.CancelFunc // starting: ends the start
	space *Space             // running and stopping

	cause       cause     // of the start
	wanted      time.Time // when a start was first wanted
	touched     bool      // the next start is for a request
	requests    int       // under way, from outside
	held        int       // requests that wait until the space is awake
	lastRequest time.Time // when the last request came or was answered; zero if there was none since the space woke by itself

	tryingSleep bool        // trySleep is under way
	busyUntil   time.Time   // the space is not asked again before then
	changed     atomic.Bool // a host object has changed since the space was last asked
	unwatch     func()      // asleep: ends the watch that sets changed
	// asleep, and only if the space follows the host's nodes: ends the watch on the nodes, which also sets changed
	unwatchNodes func()
	timer        time.Time // asleep: when it has work of its own to do; zero if never

	packed   bool // asleep: what it keeps in memory has been copied to free the pages around it
	prepared bool // Prepare has succeeded
	started  bool // it has run in this process
	failure  error
	failures int       // in a row
	retry    time.Time // when it is tried again

	suspect *crashlog.Held // set while the space may have ended an earlier process; nil if it is not held back
	hurried bool           // it is started before the other suspects
	slow    bool           // its last start took long, or the current one does
	newSlow bool           // starting: slow was set during this start
	gaveWay bool           // starting: the start was ended in favor of others

	evicted error // running or stopping: why it is put to sleep at once
	removed bool  // it is removed when it has stopped
	stopErr error
}

// cause is why a space was started; it is logged.
type cause string

const (
	byRequest cause = "request"
	byTimer   cause = "timer"
	byHost    cause = "host"  // an object of the space changed there
	byRetry   cause = "retry" // after a failure
	byWarmUp  cause = "warm-up"
	byRestart cause = "restart" // with new keys
)

// set changes the state, and notifies those who wait for a change.
func (p *place) set(to state, now time.Time) {
	p.state, p.since = to, now
	if ready := p.ready(); ready != p.wasReady {
		p.wasReady, p.readySince = ready, now
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

// next returns a channel that is closed when the state changes.
func (p *place) next() <-chan struct{} {
	if p.turn == nil {
		p.turn = make(chan struct{})
	}
	return p.turn
}

// release ends the watches on a sleeping space's host objects.
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

// resolve ends the wake with the error of the start, nil if it succeeded.
func (p *place) resolve(err error) {
	if p.wake != nil {
		p.wake.err = err
		close(p.wake.done)
		p.wake = nil
	}
}

// wake is a wanted start. All callers that want the same start share it.
type wake struct {
	done chan struct{}
	err  error // valid when done is closed
}

func newWake() *wake { return &wake{done: make(chan struct{})} }

// endedWake returns a wake that has already ended.
func endedWake(err error) *wake {
	w := newWake()
	w.err = err
	close(w.done)
	return w
}
