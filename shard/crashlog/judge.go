// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package crashlog

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// A trial keeps other suspects waiting, most of which did nothing: only that of a culprit is doubled with each
	// further unclean end, and the others are on trial in a few groups, each of which is started together.
	firstTrial = time.Minute
	lastTrial  = 4 * time.Minute
	mostGroups = 8

	firstBackoff = 10 * time.Second // of a culprit; doubled with each further unclean end
	lastBackoff  = 10 * time.Minute

	// A suspect waits for twice as long as the process before has lived, so that
	// a culprit that was not held back would end this one first.
	leastWait, mostWait = 10 * time.Second, time.Minute

	// busyWithin is how long before the end a space did something that counts as
	// having been busy then.
	busyWithin = 3 * time.Second
)

// Suspect says that a space may have killed the process, and how often.
type Suspect struct {
	// Active counts the unclean ends in a row at which it was active beside others.
	Active int
	// Culprit counts those that were its doing.
	Culprit int
}

// record is what the file of a space holds.
type record struct {
	// Running says that it starts or runs: it was active if the process is gone.
	Running bool      `json:"running,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	// Trial says that it was held back before, and has not survived its trial yet;
	// Sure, that the process survived without it for long enough.
	Trial   bool    `json:"trial,omitempty"`
	Sure    bool    `json:"sure,omitempty"`
	Suspect Suspect `json:"suspect,omitzero"`

	used   time.Time // modification time of the file: when it last did something
	weight int64     // MiB of memory that were accounted to it, see Log.Weigh
}

func (r record) empty() bool { return !r.Running && r.Suspect == Suspect{} }

// Held says how a space is held back.
type Held struct {
	Suspect
	// Rank orders those that are held back: the lowest is the most suspicious.
	Rank int
	// Group of those that are on trial together.
	Group int
	// Wait is how long it is held back, from the start of the process.
	Wait time.Duration
	// Sure says that the culprit is among those on trial if the process ends while
	// it is on trial.
	Sure bool
	// Trial is how long it is on trial.
	Trial time.Duration
}

// judge takes the records of a process that began at some time and is gone, and
// returns who is suspected, and which of these are held back.
func judge(left map[string]record, began time.Time) (map[string]Suspect, map[string]Held) {
	suspects, held := map[string]Suspect{}, map[string]Held{}
	hold := func(name string, group int, wait time.Duration, sure bool) {
		s := suspects[name]
		held[name] = Held{
			Suspect: s, Rank: len(held), Group: group, Wait: wait, Sure: sure,
			Trial: doubled(firstTrial, s.Culprit, lastTrial),
		}
	}
	var active, culprits []string
	for _, name := range slices.Sorted(maps.Keys(left)) {
		switch r := left[name]; {
		case r.Running:
			active = append(active, name)
		case r.Suspect.Culprit > 0: // another's doing does not clear it
			suspects[name] = r.Suspect
			culprits = append(culprits, name)
		}
	}
	defer func() { // after those that may have done nothing, each alone
		for i, name := range culprits {
			hold(name, mostGroups+i, backoff(suspects[name]), true)
		}
	}()
	if len(active) == 0 {
		return suspects, held
	}
	rank(active, left)
	first, tried := left[active[0]], 0 // how many were on trial
	for tried < len(active) && left[active[tried]].Trial {
		tried++
	}
	found := tried > 0 && (first.Sure || tried == len(active)) // it was one of these
	if found && tried == 1 {
		s := first.Suspect
		s.Culprit++
		suspects[active[0]] = s
		hold(active[0], 0, backoff(s), true)
		return suspects, held
	}
	if found {
		active = active[:tried]
	}
	ends := 0
	for _, name := range active {
		s := left[name].Suspect
		s.Active++
		suspects[name] = s
		ends = max(ends, s.Active)
	}
	count, wait := 1, time.Duration(0)
	if ends > 1 {
		wait = min(max(2*latest(left).Sub(began), leastWait), mostWait)
	}
	switch {
	case tried > 0:
		count = tried
	case ends > 1: // at most half, as either these or those are cleared
		count = min(1<<min(ends-2, 30), (len(active)+1)/2)
	}
	for i, name := range active[:count] {
		hold(name, i*min(count, mostGroups)/count, wait, wait > 0)
	}
	return suspects, held
}

// rank sorts spaces that were active when a process ended, the most suspicious
// first: what was on trial; of the others those that were active at the most
// unclean ends; of these those that held most memory; of these those that were
// busy; of these the one that started last.
func rank(active []string, left map[string]record) {
	end := latest(left)
	yes := func(b bool) int {
		if b {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(active, func(a, b string) int {
		x, y := left[a], left[b]
		return cmp.Or(
			cmp.Compare(yes(x.Trial), yes(y.Trial)),
			cmp.Compare(y.Suspect.Active, x.Suspect.Active),
			cmp.Compare(y.weight, x.weight),
			cmp.Compare(yes(end.Sub(x.used) <= busyWithin), yes(end.Sub(y.used) <= busyWithin)),
			y.Since.Compare(x.Since),
			y.used.Compare(x.used),
		)
	})
}

// latest is when a space of a process last did something: about its end.
func latest(left map[string]record) (t time.Time) {
	for _, r := range left {
		if r.Running && r.used.After(t) {
			t = r.used
		}
	}
	return t
}

func backoff(s Suspect) time.Duration { return doubled(firstBackoff, s.Culprit-1, lastBackoff) }

func doubled(d time.Duration, times int, most time.Duration) time.Duration {
	for range min(times, 30) {
		d *= 2
		if d >= most {
			return most
		}
	}
	return d
}
