// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import "k8s.io/client-go/util/flowcontrol"

// looksPerQuery is how many ports, endpoints or slices one query may look at. For
// each so many more it is one of its space's queries more: a tenant writes as many
// as it likes, and asks for what is behind the last.
const looksPerQuery = 100

// scan is what one question costs its space beyond the query that it is.
type scan struct {
	queries flowcontrol.PassiveRateLimiter
	looked  int  // since the last that was paid
	refused bool // the space has asked for too much
}

// look is to be called before n things are looked at; if it is false, they are
// not to be.
func (s *scan) look(n int) bool {
	for s.looked += n; s.looked > looksPerQuery && !s.refused; s.looked -= looksPerQuery {
		s.refused = !s.queries.TryAccept()
	}
	return !s.refused
}
