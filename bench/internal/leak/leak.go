// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leak judges from a process's footprints, and from what it left on the host, whether it leaks.
//
// The soak takes a [Point] whenever as much is there as before, and at the end, when nothing is.
package leak

import (
	"fmt"
	"math"

	"github.com/berth-dev/berth/bench/internal/probe"
)

// Point is what there was at a moment when all was quiet.
type Point struct {
	probe.Footprint
	// HostObjects counts the host's objects that belong to spaces.
	HostObjects int
	// Names are some of them.
	Names []string
}

// What may differ without being a leak: a connection that is kept, a timer that has not ended yet, a map that has grown.
const (
	moreGoroutines = 12
	moreFiles      = 6
	moreHeapMiB    = 3
	moreHeapShare  = 0.04
)

// Growing says what grew over points that should be alike, at least two, in the order of their time. What only the first has
// less of than the others is not a leak: it was not warm.
func Growing(points []Point) (complaints []string) {
	if len(points) > 2 {
		points = points[1:]
	}
	first, last := points[0], points[len(points)-1]
	complaints = more(first, last)
	// The least of some, since a collection may come before what refers to garbage has ended.
	third := max(1, len(points)/3)
	before, after := leastHeap(points[:third]), leastHeap(points[len(points)-third:])
	complaints = append(complaints, moreHeap(before, after)...)
	if last.HostObjects != first.HostObjects {
		complaints = append(complaints, fmt.Sprintf("the host had %d objects of as many spaces, and then %d", first.HostObjects, last.HostObjects))
	}
	return complaints
}

// Left says what is there at the end, when no space is, and was not there at the start.
func Left(start, end Point) []string {
	complaints := append(more(start, end), moreHeap(start.HeapMiB, end.HeapMiB)...)
	if end.HostObjects > 0 {
		complaints = append(complaints, fmt.Sprintf("%d host objects are left of spaces that were deleted, such as %v", end.HostObjects, end.Names))
	}
	return complaints
}

func more(before, after Point) (complaints []string) {
	for _, c := range []struct {
		what          string
		before, after float64
		limit         float64
	}{
		{"goroutines", before.Goroutines, after.Goroutines, moreGoroutines},
		{"open files", before.Files, after.Files, moreFiles},
	} {
		if c.after-c.before > c.limit {
			complaints = append(complaints, fmt.Sprintf("there were %.0f %s, and then %.0f", c.before, c.what, c.after))
		}
	}
	return complaints
}

func moreHeap(before, after float64) []string {
	limit := max(moreHeapMiB, moreHeapShare*before)
	if after-before <= limit {
		return nil
	}
	return []string{fmt.Sprintf("the live heap grew from %.1f to %.1f MiB: more than by %.1f", before, after, limit)}
}

func leastHeap(points []Point) float64 {
	least := math.Inf(1)
	for _, p := range points {
		least = min(least, p.HeapMiB)
	}
	return least
}
