// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report holds the figures of a benchmark run, each beside its peer's, and shows them to people and to programs.
//
// The bench command fills a [Report]; nothing here measures anything.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// Measure is one figure of Berth and the same figure of its peer, which is stock Kubernetes or direct use of the host.
type Measure struct {
	Berth float64 `json:"berth"`
	Stock float64 `json:"stock"`
	Unit  string  `json:"unit"`
}

// Report is what a run measured, in the order it was added.
type Report struct {
	names    []string
	measures map[string]Measure
	targets  map[string]Target
	missing  map[string]string // units of measures that were not taken
	notes    []string
	details  []string
}

// Miss appends a measure that could not be taken. Its line in the table says so, and a note says why. The JSON lacks it.
func (r *Report) Miss(name, unit string, why error) {
	if r.missing == nil {
		r.missing = map[string]string{}
	}
	r.names, r.missing[name] = append(r.names, name), unit
	r.Note("%s: not measured: %v", name, why)
}

// Add appends a measure, or replaces the one of that name.
func (r *Report) Add(name, unit string, berth, stock float64, target Target) {
	if r.measures == nil {
		r.measures, r.targets = map[string]Measure{}, map[string]Target{}
	}
	if _, known := r.measures[name]; !known {
		r.names = append(r.names, name)
	}
	r.measures[name] = Measure{Berth: round(berth), Stock: round(stock), Unit: unit}
	r.targets[name] = target
}

// Note appends a line that is printed below the table.
func (r *Report) Note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// Detail appends a line that is printed below the notes.
func (r *Report) Detail(format string, args ...any) {
	r.details = append(r.details, fmt.Sprintf(format, args...))
}

// Missed names the measures that did not reach their targets, and those that were not taken.
func (r *Report) Missed() (names []string) {
	for _, name := range r.names {
		if _, is := r.missing[name]; is || !r.targets[name].Reached(r.measures[name]) {
			names = append(names, name)
		}
	}
	return names
}

// WriteTable prints a line a measure, with Berth's share of its peer and whether that is enough, and then notes and
// details.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "measure\tberth\tstock\tunit\tberth/stock\ttarget\tverdict\t")
	for _, name := range r.names {
		if unit, is := r.missing[name]; is {
			fmt.Fprintf(t, "%s\t-\t-\t%s\t-\t-\tNOT MEASURED\t\n", name, unit)
			continue
		}
		m, target := r.measures[name], r.targets[name]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, figure(m.Berth), figure(m.Stock), m.Unit, share(m), target.text, target.verdict(m))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, note := range slices.Concat(r.notes, r.details) {
		if _, err := fmt.Fprintln(w, note); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes one object: {"<measure>": {"berth": x, "stock": y, "unit": "…"}}.
func (r *Report) WriteJSON(w io.Writer) error {
	measures := r.measures
	if measures == nil {
		measures = map[string]Measure{}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(measures)
}

// Percentile returns the value that p percent of the values don't exceed, by the nearest-rank method, or NaN of none.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// TotalRate returns the rate of several equal pieces of work together, given the rate of each: their harmonic mean. It is NaN for none.
func TotalRate(rates []float64) float64 {
	var time float64
	for _, rate := range rates {
		time += 1 / rate
	}
	return float64(len(rates)) / time
}

// round keeps what a benchmark on a shared machine can mean: four significant digits.
func round(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

func figure(x float64) string {
	return fmt.Sprintf("%.4g", x)
}

func share(m Measure) string {
	if m.Stock == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*m.Berth/m.Stock)
}
