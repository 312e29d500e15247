// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// eventBuffer is how many events a watch may hold before its feed waits for it.
const eventBuffer = 16

// subscription is the writes under one prefix as a [watch.Interface]. It keeps
// what comes until it is opened. Only its feed's goroutine calls push and end.
type subscription struct {
	prefix string
	decode *decoder
	feed   *Feed

	stop    sync.Once
	stopped chan struct{}

	mu      sync.Mutex
	after   int64 // writes up to this revision are known already
	pending []Write
	events  chan watch.Event // nil until it is opened
	ended   bool
}

// open lets events through, of writes after the revision.
func (s *subscription) open() watch.Interface {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = make(chan watch.Event, max(eventBuffer, len(s.pending)))
	for _, w := range s.pending {
		if event, ok := s.event(w); ok {
			s.events <- event
		}
	}
	s.pending = nil
	if s.ended {
		close(s.events)
	}
	return s
}

// event turns a write into what its watcher is to see. A write that can't be
// read ends the subscription; its watcher lists anew.
func (s *subscription) event(w Write) (watch.Event, bool) {
	if w.Revision <= s.after || s.ended {
		return watch.Event{}, false
	}
	object, err := s.decode.decode(w.Value, w.Revision)
	if err != nil {
		s.feed.logger.Error(err, "Reading a written object", "key", w.Key, "revision", w.Revision)
		s.ended = true
		return watch.Event{}, false
	}
	switch {
	case w.Deleted:
		return watch.Event{Type: watch.Deleted, Object: object}, true
	case w.Created:
		return watch.Event{Type: watch.Added, Object: object}, true
	default:
		return watch.Event{Type: watch.Modified, Object: object}, true
	}
}

func (s *subscription) push(w Write) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	if s.events == nil {
		s.pending = append(s.pending, w)
		s.mu.Unlock()
		return
	}
	event, ok := s.event(w)
	if s.ended {
		close(s.events)
	}
	s.mu.Unlock()
	if !ok {
		return
	}
	select {
	case s.events <- event:
	case <-s.stopped:
	}
}

func (s *subscription) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	if s.events != nil {
		close(s.events)
	}
}

// ResultChan is closed when the watcher has to list anew.
func (s *subscription) ResultChan() <-chan watch.Event { return s.events }

// Stop ends the subscription.
func (s *subscription) Stop() {
	s.stop.Do(func() {
		close(s.stopped)
		s.feed.drop(s)
	})
}
