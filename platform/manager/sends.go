// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"sync"

	"github.com/berth-dev/berth/internal/safego"
)

// sends runs work in the background, one for each space at a time: so a space whose process hangs delays no other. What is asked for while
// work on the same space runs is done once, after it. The zero value is ready. It is safe for concurrent use.
type sends struct {
	mu      sync.Mutex
	running map[string]bool // whether the work on a space is to be done again
	group   sync.WaitGroup
}

// begin has work done on a space. The work has to read what it is about when it begins.
func (s *sends) begin(space string, work func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, runs := s.running[space]; runs {
		s.running[space] = true
		return
	}
	if s.running == nil {
		s.running = map[string]bool{}
	}
	s.running[space] = false
	safego.Go(&s.group, "send what a space enforces", func() {
		for work(); s.again(space); {
			work()
		}
	}, func(error) { s.end(space) })
}

// again reports whether the work on a space is to be done again. Otherwise, it has ended.
func (s *sends) again(space string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := s.running[space]
	if again {
		s.running[space] = false
	} else {
		delete(s.running, space)
	}
	return again
}

func (s *sends) end(space string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, space)
}

// wait returns when nothing runs any more.
func (s *sends) wait() { s.group.Wait() }
