// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The colors can be told apart by readers who see fewer of them, and in gray.
func berthColor() color.Color { return color.RGBA{R: 0x1f, G: 0x5f, B: 0xc4, A: 0xff} }
func stockColor() color.Color { return color.RGBA{R: 0xb8, G: 0xc2, B: 0xcc, A: 0xff} }
func worseColor() color.Color { return color.RGBA{R: 0xd9, G: 0x7a, B: 0x1f, A: 0xff} }

const barWidth = vg.Length(14)

// drawCost draws what one more space takes beside one more stock API server, a plot for each measure: their units differ.
func drawCost(figures map[string]measure, note string) ([]byte, error) {
	rows := []struct{ name, title string }{
		{"rss_awake_mib", "memory of one more that is awake and idle, MiB"},
		{"create_s", "time to create one, until a client has written, s"},
		{"wake_s", "time to wake a sleeping space, beside a stock start, s"},
		{"idle_cpu_cores_100", "CPU of 100 that are awake and idle, cores"},
	}
	canvas := vgsvg.New(24*vg.Centimeter, vg.Length(len(rows))*2.4*vg.Centimeter+1.4*vg.Centimeter)
	area := background(canvas)
	footer(area, note)
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: 3 * vg.Millimeter, PadTop: 2 * vg.Millimeter, PadBottom: 11 * vg.Millimeter, PadLeft: 4 * vg.Millimeter, PadRight: 8 * vg.Millimeter}
	for i, row := range rows {
		m, err := figure(figures, row.name)
		if err != nil {
			return nil, err
		}
		p := newPlot(row.title)
		p.X.Max = math.Max(m.Berth, m.Stock) * 1.15
		p.NominalY("stock Kubernetes", "Berth")
		p.HideX() // each bar has its figure
		if err := bars(p, []bar{{m.Stock, short(m.Stock), stockColor()}, {m.Berth, short(m.Berth), berthColor()}}); err != nil {
			return nil, err
		}
		p.Draw(tiles.At(area, 0, i))
	}
	return bytesOf(canvas)
}

// drawUse draws how long work takes through a space, as a multiple of the same work without Berth.
func drawUse(figures map[string]measure, note string) ([]byte, error) {
	rows := []struct {
		name, title string
		rate        bool // a rate, of which more is better
	}{
		{"list_5000_s", "list 5,000 pods", false},
		{"watch_p99_s", "write to watch event, p99", false},
		{"writes_per_s", "50 writers", true},
		{"kind_pod_to_running_ms_p50", "pod runs, p50, on kind", false},
		{"burst_pods_per_s", "burst of 300 pods to the host", true},
		{"pod_to_host_ms_p99", "pod to the host, p99", false},
		{"pod_to_host_ms_p50", "pod to the host, p50", false},
		{"pods_10000_s", "10,000 pods to the host", false},
		{"noisy_p99_ms", "request beside a flood of another space, p99", false},
	}
	canvas := vgsvg.New(24*vg.Centimeter, vg.Length(len(rows))*vg.Centimeter+3.2*vg.Centimeter)
	area := background(canvas)
	footer(area, note)
	p := newPlot("time through a space, as a multiple of the time without Berth (less is better)")
	names, all, most := make([]string, len(rows)), make([]bar, len(rows)), 1.0
	for i, row := range rows {
		m, err := figure(figures, row.name)
		if err != nil {
			return nil, err
		}
		times := m.Berth / m.Stock
		if row.rate {
			times = m.Stock / m.Berth
		}
		at := len(rows) - 1 - i // the first row is at the top
		names[at], all[at] = row.title, bar{times, fmt.Sprintf("%.2f", times), berthColor()}
		if times > 1 {
			all[at].color = worseColor()
		}
		most = math.Max(most, times)
	}
	p.X.Max = most * 1.1
	p.NominalY(names...)
	same, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -0.5}, {X: 1, Y: float64(len(rows)) - 0.5}})
	if err != nil {
		return nil, err
	}
	same.Color, same.Dashes = stockColor(), []vg.Length{vg.Points(4), vg.Points(3)}
	p.Add(same)
	if err := bars(p, all); err != nil {
		return nil, err
	}
	p.Draw(draw.Crop(area, 4*vg.Millimeter, -8*vg.Millimeter, 11*vg.Millimeter, -2*vg.Millimeter))
	return bytesOf(canvas)
}

type bar struct {
	length float64
	label  string
	color  color.Color
}

// bars adds horizontal bars, from the bottom up, each with its figure at its end.
func bars(p *plot.Plot, all []bar) error {
	labels := plotter.XYLabels{XYs: make(plotter.XYs, len(all)), Labels: make([]string, len(all))}
	for i, b := range all {
		chart, err := plotter.NewBarChart(plotter.Values{b.length}, barWidth)
		if err != nil {
			return err
		}
		chart.Horizontal, chart.XMin, chart.Color, chart.LineStyle.Width = true, float64(i), b.color, 0
		p.Add(chart)
		labels.XYs[i], labels.Labels[i] = plotter.XY{X: b.length, Y: float64(i)}, b.label
	}
	figures, err := plotter.NewLabels(labels)
	if err != nil {
		return err
	}
	for i := range figures.TextStyle {
		figures.TextStyle[i].YAlign, figures.TextStyle[i].Font.Variant = text.YCenter, "Sans"
	}
	figures.Offset = vg.Point{X: vg.Points(5)}
	p.Add(figures)
	p.Y.Min, p.Y.Max, p.X.Min = -0.5, float64(len(all))-0.5, 0
	return nil
}

func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.Title.TextStyle.Font.Size, p.Title.Padding = title, vg.Points(12), vg.Points(3)
	p.Title.TextStyle.Font.Variant = "Sans"
	p.BackgroundColor = color.White
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Tick.Label.Font.Variant = "Sans"
		axis.Tick.Label.Font.Size, axis.Width = vg.Points(11), vg.Points(0.5)
	}
	return p
}

func background(canvas *vgsvg.Canvas) draw.Canvas {
	area := draw.New(canvas)
	area.FillPolygon(color.White, []vg.Point{area.Min, {X: area.Max.X, Y: area.Min.Y}, area.Max, {X: area.Min.X, Y: area.Max.Y}})
	return area
}

func footer(area draw.Canvas, note string) {
	style := plot.New().X.Tick.Label
	style.Font.Variant = "Sans"
	style.Font.Size, style.XAlign, style.YAlign = vg.Points(10), text.XLeft, text.YBottom
	area.FillText(style, vg.Point{X: area.Min.X + 4*vg.Millimeter, Y: area.Min.Y + 3*vg.Millimeter}, note)
}

// short prints two digits, or all of a larger number.
func short(v float64) string {
	return fmt.Sprintf("%.*f", max(0, 1-int(math.Floor(math.Log10(v)))), v)
}

func bytesOf(canvas *vgsvg.Canvas) ([]byte, error) {
	var out bytes.Buffer
	_, err := canvas.WriteTo(&out)
	// Where this font is not installed, a reader would get one with serifs, which is wider.
	return bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:'Liberation Sans',Arial,sans-serif")), err
}
