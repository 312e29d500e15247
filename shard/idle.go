// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/shard/credentials"
)

// Idle says when a space is idle. The zero value keeps it awake, and has every client count.
type Idle struct {
	// After is how long a space must have had no request from outside that counts
	// before it is put to sleep. Never if zero.
	After time.Duration
	// Ignored are clients whose requests don't count: they keep no space awake, and
	// wake none.
	Ignored Clients
}

// Clients are clients of a space's API server. The zero value is none.
type Clients struct {
	UserAgents    []string // prefixes
	Users, Groups []string // as the space knows them
}

// have reports whether a request, whose credential was verified, is of one of the clients.
func (c *Clients) have(r *http.Request) bool {
	agent := r.UserAgent()
	if slices.ContainsFunc(c.UserAgents, func(prefix string) bool { return strings.HasPrefix(agent, prefix) }) {
		return true
	}
	if len(c.Users)+len(c.Groups) == 0 {
		return false
	}
	user, groups := credentials.ClientOf(r)
	return slices.Contains(c.Users, user) || slices.ContainsFunc(groups, func(group string) bool { return slices.Contains(c.Groups, group) })
}

// within is d, or less where spaces are to sleep sooner than that.
func (i Idle) within(d time.Duration) time.Duration {
	if i.After > 0 {
		return min(d, i.After)
	}
	return d
}

// minSleep is the shortest sleep that is worth a start. Where places are scarce but
// idle spaces are not put to sleep, it need only be longer than a start.
func (i Idle) minSleep() time.Duration {
	if i.After > 0 {
		return min(leastSleep, i.After)
	}
	return settleTime
}
