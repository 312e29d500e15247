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
	// prepareTimeout limits how long a process may take to copy, checksum, or check a whole store before it responds.
	prepareTimeout = 10 * time.Minute
	// In each paceInterval, at least paceBytes of a store must be transferred, which is half a MiB a second. So a large
	// store has the time that it needs, but a process that somebody has taken over can't send one byte a minute
	// forever.
	paceInterval = time.Minute
	paceBytes    = 32 << 20
)

// ErrNoProgress is returned if the transfer of a store did not advance.
var ErrNoProgress = errors.New("no progress")

// pace ends the transfer of a store that makes no progress. Only one goroutine at a time may use it.
type pace struct {
	timer *time.Timer
	bytes int64 // since the timer was set
}

// withPace returns a context that is canceled if the transfer makes no progress. stop must be called after the
// transfer.
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

// begin starts to measure the transfer.
func (p *pace) begin() {
	p.bytes = 0
	p.timer.Reset(paceInterval)
}

// note counts transferred bytes.
func (p *pace) note(n int) {
	if p.bytes += int64(n); p.bytes >= paceBytes {
		p.begin()
	}
}

// pacedReader counts what is read from a reader.
type pacedReader struct {
	io.Reader
	pace *pace
	// sent means that the data is sent, and that the receiver processes it after that. Otherwise, it is received.
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
