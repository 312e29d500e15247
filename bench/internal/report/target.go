// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

// Target is what a measure is to reach. The zero value asks for nothing.
type Target struct {
	text    string
	reached func(Measure) bool
}

// AtMost asks for a value that the peer has no part in.
func AtMost(limit float64) Target {
	return Target{fmt.Sprintf("≤ %s", figure(limit)), func(m Measure) bool { return m.Berth <= limit }}
}

// AtMostShare asks for a share of what the peer needs.
func AtMostShare(share float64) Target {
	return Target{fmt.Sprintf("≤ %.0f %%", 100*share), func(m Measure) bool { return m.Berth <= share*m.Stock }}
}

// AtLeastShare asks for a share of what the peer does.
func AtLeastShare(share float64) Target {
	return Target{fmt.Sprintf("≥ %.0f %%", 100*share), func(m Measure) bool { return m.Berth >= share*m.Stock }}
}

// Reached tells whether m is good enough.
func (t Target) Reached(m Measure) bool { return t.reached == nil || t.reached(m) }

func (t Target) verdict(m Measure) string {
	switch {
	case t.reached == nil:
		return "-"
	case t.reached(m):
		return "reached"
	default:
		return "MISSED"
	}
}
