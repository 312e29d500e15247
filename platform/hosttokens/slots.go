// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hosttokens

import (
	"net/netip"
	"sync"
	"time"

	"github.com/berth-dev/berth/internal/safego"
)

// slots limit how many tokens the host reviews at once. They are safe for concurrent use.
type slots struct {
	total, perSpace, perClient int

	mu       sync.Mutex
	held     int
	bySpace  map[string]int
	byClient map[netip.Prefix]int
}

func newSlots(total, perSpace, perClient int) *slots {
	return &slots{total: total, perSpace: perSpace, perClient: perClient, bySpace: map[string]int{}, byClient: map[netip.Prefix]int{}}
}

// take reports whether there is a slot. If so, give must follow.
func (s *slots) take(space string, client netip.Prefix) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held >= s.total || s.bySpace[space] >= s.perSpace || s.byClient[client] >= s.perClient {
		return false
	}
	s.held++
	s.bySpace[space]++
	s.byClient[client]++
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
	s.held--
	if s.bySpace[space]--; s.bySpace[space] == 0 {
		delete(s.bySpace, space)
	}
	if s.byClient[client]--; s.byClient[client] == 0 {
		delete(s.byClient, client)
	}
}
