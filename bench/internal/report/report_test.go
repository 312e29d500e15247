// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheJSONIsOneObjectOfMeasures(t *testing.T) {
	var r Report
	r.Add("rss_further_mib", "MiB", 15.96412, 131.2, AtMost(16))
	r.Add("create_s", "s", 0.4, 2, Target{})
	r.Note("told to people only")
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got map[string]map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]any{
		"rss_further_mib": {"berth": 15.96, "stock": 131.2, "unit": "MiB"},
		"create_s":        {"berth": 0.4, "stock": 2.0, "unit": "s"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func TestAReportOfNothingIsStillAnObject(t *testing.T) {
	var r Report
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "{}\n" {
		t.Errorf("JSON = %q, want an empty object", got)
	}
}

func TestTheTableKeepsTheOrderAndShowsTheShare(t *testing.T) {
	var r Report
	r.Add("create_s", "s", 1, 2, AtMostShare(0.25))
	r.Add("create_s", "s", 0.5, 2, AtMostShare(0.25))
	r.Add("rss_awake_mib", "MiB", 8, 130, AtMost(16))
	r.Detail("why")
	r.Note("median of %d", 3)
	r.Add("idle_cpu_cores_further", "cores", 0.001, 0, Target{})
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"                 measure  berth  stock   unit  berth/stock  target  verdict\n" +
		"                create_s    0.5      2      s         25 %  ≤ 25 %  reached\n" +
		"           rss_awake_mib      8    130    MiB          6 %    ≤ 16  reached\n" +
		"  idle_cpu_cores_further  0.001      0  cores            -                -\n" +
		"median of 3\n" +
		"why\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestPercentileIsAValueThatWasMeasured(t *testing.T) {
	ten := []float64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}
	for name, c := range map[string]struct {
		values []float64
		p      float64
		want   float64
	}{
		"the median of ten is the fifth":         {values: ten, p: 50, want: 5},
		"the 99th of ten is the largest":         {values: ten, p: 99, want: 10},
		"the 0th is the smallest":                {values: ten, p: 0, want: 1},
		"of one value every percentile is it":    {values: []float64{3}, p: 1, want: 3},
		"the values need not be sorted to start": {values: []float64{5, 1, 3}, p: 50, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Percentile(c.values, c.p); got != c.want {
				t.Errorf("Percentile(%v, %v) = %v, want %v", c.values, c.p, got, c.want)
			}
		})
	}
}

func TestATotalRateIsThatOfAllWorkTogether(t *testing.T) {
	// 100 in 1 s, and 100 in 4 s, are 200 in 5 s.
	if got := TotalRate([]float64{100, 25}); got != 40 {
		t.Errorf("TotalRate(100, 25) = %v, want 40", got)
	}
	if got := TotalRate(nil); !math.IsNaN(got) {
		t.Errorf("TotalRate of nothing = %v, want NaN", got)
	}
}

func TestATargetIsReachedUpToItsLimit(t *testing.T) {
	for name, c := range map[string]struct {
		target       Target
		good, better float64
		bad          float64
	}{
		"a value of its own":             {AtMost(16), 16, 1, 16.1},
		"a share of what the peer needs": {AtMostShare(0.25), 25, 1, 25.1},
		"a share of what the peer does":  {AtLeastShare(0.8), 80, 200, 79.9},
		"nothing":                        {Target{}, 0, 1000, math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			for _, value := range []float64{c.good, c.better} {
				if !c.target.Reached(Measure{Berth: value, Stock: 100}) {
					t.Errorf("%v beside 100 does not reach %q", value, c.target.text)
				}
			}
			if !math.IsNaN(c.bad) && c.target.Reached(Measure{Berth: c.bad, Stock: 100}) {
				t.Errorf("%v beside 100 reaches %q", c.bad, c.target.text)
			}
		})
	}
}

func TestWhatMissedItsTargetIsNamed(t *testing.T) {
	var r Report
	r.Add("good", "s", 1, 2, AtMost(1))
	r.Add("bad", "s", 2, 2, AtMost(1))
	r.Add("free", "s", 2, 2, Target{})
	r.Miss("absent", "s", errors.New("no server"))
	if diff := cmp.Diff([]string{"bad", "absent"}, r.Missed()); diff != "" {
		t.Errorf("missed (-want +got):\n%s", diff)
	}
}

// What could not be measured is in the table, with the reason, and is no figure.
func TestWhatWasNotMeasuredIsShown(t *testing.T) {
	var r Report
	r.Add("first", "s", 1, 2, AtMost(1))
	r.Miss("absent_per_s", "1/s", errors.New("install the package postgresql"))
	var out, figures bytes.Buffer
	if err := errors.Join(r.WriteTable(&out), r.WriteJSON(&figures)); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"       measure  berth  stock  unit  berth/stock  target       verdict\n" +
		"         first      1      2     s         50 %     ≤ 1       reached\n" +
		"  absent_per_s      -      -   1/s            -       -  NOT MEASURED\n" +
		"absent_per_s: not measured: install the package postgresql\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if strings.Contains(figures.String(), "absent") {
		t.Errorf("the JSON is %s", figures.String())
	}
}
