// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// settled is how long the platform has, in hours, until it counts.
const settled = 24

// table prints what the series show.
func (r *result) table(out io.Writer) error {
	var calm, after []point
	for _, one := range r.Series {
		switch {
		case one.Hour < settled: // all spaces have just been created
		case one.after:
			after = append(after, one)
		case !one.lost:
			calm = append(calm, one)
		}
	}
	c := r.Config
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "%d shards in %d zones, %d spaces of %d tenants, %d days of which the first doesn't count, seed %d\n\n", c.Shards, c.Zones, c.Spaces, c.Tenants, c.Days, c.Seed)
	fmt.Fprintln(w, "measure\tp50\tworst")
	for _, row := range []struct {
		name   string
		points []point
		of     func(point) float64
	}{
		{"awake spaces of a shard, mean", calm, func(p point) float64 { return p.Awake }},
		{"awake spaces, max/mean", calm, func(p point) float64 { return p.MaxAwake / p.Awake }},
		{"memory of a shard, mean, % of its limit", calm, func(p point) float64 { return p.Memory }},
		{"memory, max/mean", calm, func(p point) float64 { return p.MaxMemory / p.Memory }},
		{"memory, max/mean, by hashes of names", calm, func(p point) float64 { return p.MaxHashed / p.Memory }},
		{"memory of the fullest shard, %", calm, func(p point) float64 { return p.MaxMemory }},
		{"spaces, max/mean", calm, func(p point) float64 { return p.MaxSpaces }},
		{"moves per hour", hours(calm), func(p point) float64 { return float64(p.Moves) }},
		{"after the loss: memory of the fullest shard, %", after, func(p point) float64 { return p.MaxMemory }},
		{"after the loss: moves per hour", hours(after), func(p point) float64 { return float64(p.Moves) }},
	} {
		var values []float64
		for _, one := range row.points {
			values = append(values, row.of(one))
		}
		slices.Sort(values)
		if len(values) > 0 {
			fmt.Fprintf(w, "%s\t%.2f\t%.2f\n", row.name, values[len(values)/2], values[len(values)-1])
		}
	}
	fmt.Fprintf(w, "\ntenants with %d spaces or more\t%d\n", c.Zones, r.Tenants)
	fmt.Fprintf(w, "of these, with all in one zone; and by hashes of names\t%d\t%d\n", r.OneZone, r.HashedOneZone)
	l := r.Loss
	fmt.Fprintf(w, "\nLoss of a zone for %d hours, with %d failovers a second\n", lossHours, c.FailoversPerSecond)
	fmt.Fprintf(w, "shards, spaces, awake spaces\t%d\t%d\t%d\n", l.Shards, l.Spaces, l.Awake)
	fmt.Fprintf(w, "portable spaces, of these not placed\t%d\t%d\n", l.Portable, l.Unplaced)
	fmt.Fprintf(w, "awake portable spaces are served again after, s\t%.0f\n", l.AwakeSeconds)
	fmt.Fprintf(w, "all portable spaces are served again after, s\t%.0f\n", l.Seconds)
	fmt.Fprintf(w, "spaces with SQLite stores wait for the zone, s\t%d\n", lossHours*3600)
	fmt.Fprintf(w, "the zone has half of its part of the memory again after, h\t%.1f\n\n", l.BalancedHours)
	return w.Flush()
}

// hours adds up the moves of each hour.
func hours(points []point) (all []point) {
	for _, one := range points {
		if n := len(all); n > 0 && int(all[n-1].Hour) == int(one.Hour) {
			all[n-1].Moves += one.Moves
			continue
		}
		all = append(all, one)
	}
	return all
}
