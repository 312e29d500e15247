// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// simulation is what bench/simulate writes.
type simulation struct {
	Config struct{ Shards, Zones, Spaces, Days int }
	Series []moment `json:"series"`
}

// moment is the platform at an hour. Memory is in percent of the limit of a shard.
type moment struct {
	Hour      float64 `json:"hour"`
	Awake     float64 `json:"awake"`
	MaxAwake  float64 `json:"maxAwake"`
	Memory    float64 `json:"memory"`
	MaxMemory float64 `json:"maxMemory"`
	Moves     float64 `json:"moves"`
	Down      float64 `json:"down"`
}

func runSimulation(dir, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var s simulation
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	svg, err := drawSimulation(&s)
	if err != nil {
		return fmt.Errorf("draw the simulation: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "placement.svg"), svg, 0o644)
}

// drawSimulation draws the series below each other, over the hours.
func drawSimulation(s *simulation) ([]byte, error) {
	if len(s.Series) == 0 {
		return nil, errors.New("the series are empty")
	}
	type line struct {
		of    func(moment) float64
		color color.Color
	}
	rows := []struct {
		title string
		lines []line
	}{
		{"awake spaces of a shard: the mean (gray) and the most", []line{{func(m moment) float64 { return m.Awake }, stockColor()}, {func(m moment) float64 { return m.MaxAwake }, berthColor()}}},
		{"memory of a shard, in percent of its limit: the mean (gray) and the most", []line{{func(m moment) float64 { return m.Memory }, stockColor()}, {func(m moment) float64 { return m.MaxMemory }, berthColor()}}},
		{"moves in ten minutes", []line{{func(m moment) float64 { return m.Moves }, berthColor()}}},
		{"spaces that can't be reached, in thousands", []line{{func(m moment) float64 { return m.Down / 1000 }, worseColor()}}},
	}
	canvas := vgsvg.New(24*vg.Centimeter, vg.Length(len(rows))*4*vg.Centimeter+1.4*vg.Centimeter)
	area := background(canvas)
	footer(area, fmt.Sprintf("Simulated: %d shards in %d zones, %d spaces, %d days. A zone is lost at hour %d.", s.Config.Shards, s.Config.Zones, s.Config.Spaces, s.Config.Days, (s.Config.Days-1)*24+13))
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: 3 * vg.Millimeter, PadTop: 2 * vg.Millimeter, PadBottom: 11 * vg.Millimeter, PadLeft: 4 * vg.Millimeter, PadRight: 8 * vg.Millimeter}
	for i, row := range rows {
		p := newPlot(row.title)
		p.Y.Min, p.X.Tick.Marker = 0, plot.TickerFunc(everySix)
		p.Y.Tick.Marker = plot.DefaultTicks{}
		for _, one := range row.lines {
			points := make(plotter.XYs, len(s.Series))
			for k, m := range s.Series {
				points[k] = plotter.XY{X: m.Hour, Y: one.of(m)}
			}
			drawn, err := plotter.NewLine(points)
			if err != nil {
				return nil, err
			}
			drawn.Color, drawn.Width = one.color, vg.Points(1.2)
			p.Add(drawn)
		}
		p.Draw(tiles.At(area, 0, i))
	}
	return bytesOf(canvas)
}

// everySix returns a tick for each sixth hour.
func everySix(from, to float64) (ticks []plot.Tick) {
	for hour := 0; float64(hour) <= to+0.5; hour += 6 {
		if float64(hour) >= from {
			ticks = append(ticks, plot.Tick{Value: float64(hour), Label: fmt.Sprint(hour)})
		}
	}
	return ticks
}
