// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/internal/safego"
)

// partLease is how long at most a part of an answer counts as one that is written. After that it waits for its client.
const partLease = 10 * time.Millisecond

// partsWriter has the parts of a long answer take turns once its request's own turn is over. Fifty watches that are sent all
// objects, or that one change wakes, would otherwise wait for a processor all at once, and other spaces' requests behind them.
type partsWriter struct {
	http.ResponseWriter

	over atomic.Bool // its request's own turn
	turn func() (release func(), err error)
}

// Unwrap is for [http.ResponseController].
func (w *partsWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements [http.ResponseWriter].
func (w *partsWriter) Write(part []byte) (int, error) {
	if !w.over.Load() {
		return w.ResponseWriter.Write(part)
	}
	release, err := w.turn()
	if err != nil {
		return 0, err
	}
	defer release()
	defer safego.AfterFunc(partLease, "end a turn", release).Stop()
	return w.ResponseWriter.Write(part)
}
