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

// Idle says when a space is idle. With the zero value, a space stays awake and the requests of all clients count.
type Idle struct {
	// After is how long a space must have had no request that counts before it is put to sleep. Zero means never.
	After time.Duration
	// Ignored are clients whose requests don't count: they neither keep a space awake nor wake one.
	Ignored Clients
}

// Clients describes clients of a space's API server. The zero value matches none.
type Clients struct {
	UserAgents    []string // prefixes
	Users, Groups []string // as the space's API server knows them
}

// have reports whether a request, whose credential has been verified, is from one of the clients.
func (c *Clients) have(r *http.Request) bool {
	agent := r.UserAgent()
	if slices.ContainsFunc(c.UserAgents, func(prefix string) bool { return strings.HasPrefix(agent, prefix) }) {
		return true
	}
	if len(c.Users)+len(c.Groups) == 0 {
		return false
	}
	client := credentials.ClientOf(r)
	return slices.Contains(c.Users, client.GetName()) || slices.ContainsFunc(client.GetGroups(), func(group string) bool { return slices.Contains(c.Groups, group) })
}

// within returns d, or After if that is shorter.
func (i Idle) within(d time.Duration) time.Duration {
	if i.After > 0 {
		return min(d, i.After)
	}
	return d
}

// minSleep is the shortest sleep that is worth the cost of a start. If spaces sleep only because too many are wanted,
// and not because they are idle, the sleep need only be longer than a start.
func (i Idle) minSleep() time.Duration {
	if i.After > 0 {
		return min(leastSleep, i.After)
	}
	return settleTime
}
