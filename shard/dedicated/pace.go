// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/berth-dev/berth/internal/safego"
)

const (
	// prepareTimeout bounds what a process does with a whole store before it answers: it copies, sums, or checks it.
	prepareTimeout = 10 * time.Minute
	// paceInterval is how long paceBytes of a store may take on the network, half a MiB a second. So a large store takes as
	// long as it needs, and a process that somebody has taken over can't send one byte a minute forever.
	paceInterval = time.Minute
	paceBytes    = 32 << 20
)

// ErrNoProgress says that the transfer of a store did not advance.
var ErrNoProgress = errors.New("no progress")

// pace ends the transfer of a store that makes no progress. It is for one goroutine at a time.
type pace struct {
	timer *time.Timer
	bytes int64 // since the timer was set
}

// withPace returns a context that ends with the transfer. stop is to be called once that is done.
func withPace(ctx context.Context) (paced context.Context, p *pace, stop func()) {
	paced, cancel := context.WithCancelCause(ctx)
	p = &pace{timer: safego.AfterFunc(prepareTimeout, "give up the transfer of a store", func() {
		cancel(fmt.Errorf("%w: a store may take %s to be prepared, and then %s for each %d MiB", ErrNoProgress, prepareTimeout, paceInterval, paceBytes>>20))
	})}
	return paced, p, func() {
		p.timer.Stop()
		cancel(nil)
	}
}

// begin has the transfer begin.
func (p *pace) begin() {
	p.bytes = 0
	p.timer.Reset(paceInterval)
}

// note counts bytes that were transferred.
func (p *pace) note(n int) {
	if p.bytes += int64(n); p.bytes >= paceBytes {
		p.begin()
	}
}

// pacedReader is what is transferred.
type pacedReader struct {
	io.Reader
	pace *pace
	// sent says that it is sent, and then prepared by who receives it, and else that it is received.
	sent  bool
	began bool
}

// Read implements [io.Reader].
func (r *pacedReader) Read(p []byte) (int, error) {
	if !r.began {
		r.began = true
		r.pace.begin()
	}
	n, err := r.Reader.Read(p)
	r.pace.note(n)
	if err != nil && r.sent {
		r.pace.timer.Reset(prepareTimeout)
	}
	return n, err
}
