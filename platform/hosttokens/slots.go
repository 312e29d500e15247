// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hosttokens

import (
	"net/netip"
	"sync"
	"time"

	"github.com/berth-dev/berth/internal/safego"
)

// slots limit how many tokens are checked or reviewed at once: in total, per space, and per client of a space. Clients of
// different spaces don't share a limit, because many clients may have one address, behind a proxy. Only a space without a slot
// gets one of the second half of the total, so a flood for a few spaces leaves slots for the others. slots are safe for
// concurrent use.
type slots struct {
	total, perSpace, perClient int

	mu       sync.Mutex
	taken    int
	bySpace  map[string]int
	byClient map[spaceClient]int
}

// spaceClient is a client of a space.
type spaceClient struct {
	space  string
	client netip.Prefix
}

func newSlots(total, perSpace, perClient int) *slots {
	return &slots{total: total, perSpace: perSpace, perClient: perClient, bySpace: map[string]int{}, byClient: map[spaceClient]int{}}
}

// take reports whether there is a slot. If so, give must follow.
func (s *slots) take(space string, client netip.Prefix) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := s.total
	if s.bySpace[space] > 0 {
		total = s.total / 2
	}
	by := spaceClient{space, client}
	if s.taken >= total || s.bySpace[space] >= s.perSpace || s.byClient[by] >= s.perClient {
		return false
	}
	s.taken++
	s.bySpace[space]++
	s.byClient[by]++
	return true
}

// give gives a slot back after a pause.
func (s *slots) give(space string, client netip.Prefix, pause time.Duration) {
	if pause > 0 {
		safego.AfterFunc(pause, "give back the review of a token", func() { s.give(space, client, 0) })
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.bySpace[space]--; s.bySpace[space] == 0 {
		delete(s.bySpace, space)
	}
	by := spaceClient{space, client}
	if s.byClient[by]--; s.byClient[by] == 0 {
		delete(s.byClient, by)
	}
}
