// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package leak

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/bench/internal/probe"
)

func point(heap, goroutines, files float64, hostObjects int) Point {
	return Point{Footprint: probe.Footprint{HeapMiB: heap, Goroutines: goroutines, Files: files}, HostObjects: hostObjects}
}

func TestWhatGrowsFromPointToPointIsALeak(t *testing.T) {
	flat := point(80, 100, 20, 900)
	for name, c := range map[string]struct {
		points []Point
		want   string // in the one complaint; none if empty
	}{
		"all alike":                             {[]Point{flat, flat, flat}, ""},
		"only the first was not warm":           {[]Point{point(60, 50, 10, 900), flat, flat, flat}, ""},
		"a little more of each":                 {[]Point{flat, flat, point(82, 105, 23, 900)}, ""},
		"a heap that goes up and down":          {[]Point{flat, point(95, 100, 20, 900), flat, point(95, 100, 20, 900), point(95, 100, 20, 900), flat}, ""},
		"a heap that grows a little each round": {[]Point{flat, point(82, 100, 20, 900), point(84, 100, 20, 900), point(86, 100, 20, 900)}, "live heap"},
		"goroutines":                            {[]Point{flat, flat, point(80, 140, 20, 900)}, "goroutines"},
		"files":                                 {[]Point{flat, flat, point(80, 100, 40, 900)}, "open files"},
		"one host object":                       {[]Point{flat, flat, point(80, 100, 20, 901)}, "host had 900 objects"},
		"two points that differ":                {[]Point{flat, point(80, 140, 20, 900)}, "goroutines"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, Growing(c.points), c.want) })
	}
}

func TestWhatIsLeftOfDeletedSpacesIsALeak(t *testing.T) {
	start := point(70, 90, 12, 0)
	for name, c := range map[string]struct {
		end  Point
		want string
	}{
		"nothing":         {point(70, 92, 12, 0), ""},
		"goroutines":      {point(70, 290, 12, 0), "goroutines"},
		"files":           {point(70, 90, 212, 0), "open files"},
		"heap":            {point(75, 90, 12, 0), "live heap"},
		"one host object": {point(70, 90, 12, 1), "1 host objects are left"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, Left(start, c.end), c.want) })
	}
}

func expect(t *testing.T, complaints []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(complaints) != 0:
		t.Errorf("complaints = %q, want none", complaints)
	case want != "" && (len(complaints) != 1 || !strings.Contains(complaints[0], want)):
		t.Errorf("complaints = %q, want one of %q", complaints, want)
	}
}
