// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package main draws the plots of the README from the figures of a benchmark run, as `make bench` writes them with
// BENCH_JSON. `make plots` runs it. It also draws what the simulator of placement writes, for `make simulate`.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// measure is one figure of Berth and the same figure of its peer.
type measure struct {
	Berth float64 `json:"berth"`
	Stock float64 `json:"stock"`
	Unit  string  `json:"unit"`
}

func main() {
	out := flag.String("out", ".", "directory to write the plots to")
	simulation := flag.String("simulation", "", "file with the series of a simulation, to draw these instead")
	note := flag.String("note", "", "where and when the figures were measured, to print on each plot")
	flag.Parse()
	draw := func() error { return run(*out, *note, flag.Args()) }
	if *simulation != "" {
		draw = func() error { return runSimulation(*out, *simulation) }
	}
	if err := draw(); err != nil {
		fmt.Fprintln(os.Stderr, "draw plots:", err)
		os.Exit(1)
	}
}

func run(dir, note string, files []string) error {
	if len(files) == 0 {
		return errors.New("no files with figures: make plots BENCH_JSON=FILE")
	}
	figures := map[string]measure{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(data, &figures); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
	}
	for name, draw := range map[string]func(map[string]measure, string) ([]byte, error){"bench-cost.svg": drawCost, "bench-use.svg": drawUse} {
		svg, err := draw(figures, note)
		if err != nil {
			return fmt.Errorf("draw %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// figure returns the measure of a name, which has to be there and above zero.
func figure(figures map[string]measure, name string) (measure, error) {
	m, ok := figures[name]
	if !ok || m.Berth <= 0 || m.Stock <= 0 {
		return m, fmt.Errorf("measure %s is not in the figures, or not above zero", name)
	}
	return m, nil
}
