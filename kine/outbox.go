// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// outbox is a watch stream whose Send never waits for the client.
//
// kine answers a cancellation from the goroutine that reads the client's requests, and etcd's client sends a cancellation
// from the one that reads the server's answers. Over a network there is room for both; between two goroutines there is
// none, and they wait for each other for ever: every watch of the store then stands still. What is queued is bounded by
// the client, which takes answers whenever it does not send, and keeps them by the watch as it is.
type outbox struct {
	etcdserverpb.Watch_WatchServer

	mu    sync.Mutex
	queue []*etcdserverpb.WatchResponse
	// over are the watches that were lately told to be over. kine may still send what it had read for them, which etcd
	// never does, and which ends the client's process (it sends on a channel that it has closed).
	over, overBefore map[int64]bool

	filled chan struct{}
	ended  chan struct{}
	sender sync.WaitGroup
}

// newOutbox starts to send; close ends it.
func newOutbox(ws etcdserverpb.Watch_WatchServer) *outbox {
	o := &outbox{Watch_WatchServer: ws, filled: make(chan struct{}, 1), ended: make(chan struct{})}
	o.sender.Go(o.run)
	return o
}

// Send queues the answer. Answers are sent in the order of the calls.
func (o *outbox) Send(r *etcdserverpb.WatchResponse) error {
	if err := o.Context().Err(); err != nil {
		return err
	}
	o.mu.Lock()
	if o.over[r.WatchId] || o.overBefore[r.WatchId] {
		o.mu.Unlock()
		return nil
	}
	if r.Canceled && r.WatchId >= 0 {
		o.forget(r.WatchId)
	}
	o.queue = append(o.queue, r)
	o.mu.Unlock()
	select {
	case o.filled <- struct{}{}:
	default:
	}
	return nil
}

// overMax bounds how many watches are remembered as over. What comes late comes within moments.
const overMax = 1024

func (o *outbox) forget(watch int64) {
	if len(o.over) >= overMax {
		o.over, o.overBefore = nil, o.over
	}
	if o.over == nil {
		o.over = map[int64]bool{}
	}
	o.over[watch] = true
}

func (o *outbox) run() {
	for {
		select {
		case <-o.filled:
		case <-o.ended:
			return
		case <-o.Context().Done():
			return
		}
		o.mu.Lock()
		answers := o.queue
		o.queue = nil
		o.mu.Unlock()
		for _, r := range answers {
			if o.Watch_WatchServer.Send(r) != nil {
				return // the stream is over, which its reader learns, too
			}
		}
	}
}

// close waits for the sender. The stream must be over, or its client reading.
func (o *outbox) close() {
	close(o.ended)
	o.sender.Wait()
}
