// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package main simulates a platform of many shards around the code that places spaces: package operator/placement decides, and the
// shards, the spaces, and when these are awake are made up. `make simulate` runs it, and draws its series.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	c := usual()
	flag.IntVar(&c.Shards, "shards", c.Shards, "number of shards")
	flag.IntVar(&c.Zones, "zones", c.Zones, "number of zones")
	flag.IntVar(&c.Spaces, "spaces", c.Spaces, "number of spaces")
	flag.IntVar(&c.Days, "days", c.Days, "simulated days, of which a zone is lost at 13:00 on the last one")
	flag.IntVar(&c.FailoversPerSecond, "failovers", c.FailoversPerSecond, "spaces that are placed anew in a second when their shard is lost")
	flag.Float64Var(&c.Portable, "portable", c.Portable, "part of the spaces whose store is a database")
	flag.Uint64Var(&c.Seed, "seed", c.Seed, "seed of what is made up; equal seeds give equal results")
	file := flag.String("json", "", "file to write the series to")
	flag.Parse()
	start := time.Now()
	r := run(c)
	if err := r.table(os.Stdout); err == nil && *file != "" {
		var text []byte
		if text, err = json.Marshal(r); err == nil {
			err = os.WriteFile(*file, text, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "simulate:", err)
			os.Exit(1)
		}
	}
	fmt.Fprintf(os.Stderr, "took %s\n", time.Since(start).Round(time.Second))
}
