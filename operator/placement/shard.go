// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

const (
	// AwakeBytes is how much memory an awake space is taken to need until its shard has reported its memory.
	AwakeBytes = 16 << 20
	// FullPercent is the share of its memory limit from which a shard gets no more spaces.
	FullPercent = 80
)

// Shard is a process of a platform.
type Shard struct {
	Name string
	// Zone is the failure domain of the shard. The spaces of a tenant are spread over zones. Shards without one are in the same zone.
	Zone string
	// Ready says that the shard serves requests.
	Ready bool
	// Lost says that the shard has not been ready for so long that no move to it is expected to end.
	Lost bool
	// Dead says that the process of the shard has ended or hangs, so that others may serve its portable spaces.
	Dead bool
	// Unschedulable says that the shard gets no more spaces. Draining says this too, and that its spaces move to other shards.
	Unschedulable, Draining bool
	// DedicatedMax is how many dedicated spaces the shard may have. If it is nil, its dedicated spaces don't move, and none comes to it.
	DedicatedMax *int32
	// Retained are the names of deleted spaces whose stores the shard retains. New spaces of these names get the shard.
	Retained []string
	// Minor is the minor version of Kubernetes that the shard's spaces serve, such as 37; 0 if it isn't known.
	Minor uint
	// Selects selects the spaces that the shard gets. Those that it selects get no other shard. If it is nil, the shard gets those that no
	// shard selects.
	Selects labels.Selector
	// Memory is what the process takes, and MemoryLimit what it may take at most, in bytes. The limit is 0 if there is none.
	Memory, MemoryLimit int64
	// Awake is the number of awake spaces that the shard reported together with Memory.
	Awake int
	// Balanced is when a space last began to move from or to the shard for balance. It is zero if it isn't known.
	Balanced time.Time
}

// Space is a space of a platform.
type Space struct {
	Name, Tenant string
	// Shard is the name of the shard that has the space, and MovingTo that of the shard to which it moves. Both may be empty.
	Shard, MovingTo string
	// Awake says that the space takes memory. A new space is awake.
	Awake bool
	// Minor is the minor version of Kubernetes that the space is to serve; 0 if it is that of its shard.
	Minor uint
	// Labels are what shards select by.
	Labels labels.Set
	// Portable says that the store of the space is not in its shard, so that another shard can serve the space if its shard is dead.
	Portable bool
	// Dedicated says that the space has a process of its own. Busy says that this isn't asleep, so that a move cuts watches.
	Dedicated, Busy bool
	// Fixed says that the space can't move: its shard doesn't have its store.
	Fixed bool
	// New says that the space has no store yet, so that it can't move.
	New bool
	// Moved is when the space last began to move. It is zero if it isn't known.
	Moved time.Time
}

// used reports whether the space doesn't sleep.
func (s *Space) used() bool { return s.Awake || s.Busy }

// Reason is why a space moves.
type Reason string

// Reasons of moves.
const (
	// Drain is that the shard of the space is drained.
	Drain Reason = "Drain"
	// Balance is that the shard of the space has far more than other shards.
	Balance Reason = "Balance"
	// Pool is that the shard of the space isn't one of those that the space is for, and others are.
	Pool Reason = "Pool"
	// Failover is that the shard of the space is dead. The space is placed at once: nothing is copied.
	Failover Reason = "Failover"
)

// Move is a space to move.
type Move struct {
	Space, From, To string
	Reason          Reason
}
