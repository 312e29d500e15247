// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hosttokens

import (
	"fmt"
	"net/netip"
	"testing"
)

func address(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 32)
}

// O9: a client that fills its slots of one space has those of another space.
func TestClientsAreLimitedPerSpace(t *testing.T) {
	s := newSlots(maxReviews, maxReviewsPerSpace, maxReviewsPerClient)
	for i := range maxReviewsPerClient + 1 {
		if got, want := s.take("solar", address(1)), i < maxReviewsPerClient; got != want {
			t.Errorf("slot %d of one client: %v", i, got)
		}
	}
	if !s.take("lunar", address(1)) {
		t.Error("the same address has no slot of another space")
	}
	if !s.take("solar", address(2)) {
		t.Error("another address has no slot of the space")
	}
}

// O9, S7: a flood for a few spaces leaves slots for others, and all slots come back.
func TestHostileFloodsForSomeSpacesLeaveSlotsForOthers(t *testing.T) {
	s := newSlots(maxReviews, maxReviewsPerSpace, maxReviewsPerClient)
	taken := map[spaceClient]int{}
	for client := range 8 {
		for space := range 4 {
			by := spaceClient{fmt.Sprint("flooded", space), address(client)}
			for s.take(by.space, by.client) {
				taken[by]++
			}
		}
	}
	others := 0
	for s.take(fmt.Sprint("other", others), address(1)) {
		others++
	}
	if others < maxReviews/2-4 {
		t.Errorf("%d other spaces have a slot", others)
	}
	if s.taken > maxReviews {
		t.Errorf("%d slots are taken", s.taken)
	}
	for by, n := range taken {
		for range n {
			s.give(by.space, by.client, 0)
		}
	}
	for i := range others {
		s.give(fmt.Sprint("other", i), address(1), 0)
	}
	if s.taken != 0 || len(s.bySpace) != 0 || len(s.byClient) != 0 {
		t.Errorf("after all were given back: %d, %v, %v", s.taken, s.bySpace, s.byClient)
	}
}
