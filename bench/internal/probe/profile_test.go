// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"
)

func TestAProfileIsAddedUpByWhoIsToBlame(t *testing.T) {
	data := encode(t, map[int64][]string{ // by value, from the innermost function outward
		1:  {"runtime.mallocgc", "internal/runtime/maps.newTable", "k8s.io/api/core/v1.(*Pod).Marshal", "main.serve", "runtime.goexit"},
		2:  {"k8s.io/api/core/v1.Kind.func1", "example.com/x/y.Run[go.shape.struct { a/b.C }].func1", "k8s.io/apimachinery/pkg/util/wait.Until", "runtime.goexit"},
		4:  {"runtime.scanobject", "runtime.gcBgMarkWorker"},
		8:  {"gopkg.in/yaml%2ev2.Unmarshal", "net/http.(*conn).serve"},
		16: nil,
	})
	byPackage, err := ByPackage(data, "space")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"k8s.io/api/core/v1": 3, "runtime.gcBgMarkWorker": 4, "gopkg.in/yaml%2ev2": 8, "unknown": 16}
	if diff := cmp.Diff(want, byPackage); diff != "" {
		t.Errorf("by package (-want +got):\n%s", diff)
	}
	byOrigin, err := ByOrigin(data, "space")
	if err != nil {
		t.Fatal(err)
	}
	want = map[string]float64{
		"main.serve": 1, "example.com/x/y.Run[...].func1": 2, "runtime.gcBgMarkWorker": 4, "gopkg.in/yaml%2ev2.Unmarshal": 8, "unknown": 16,
	}
	if diff := cmp.Diff(want, byOrigin); diff != "" {
		t.Errorf("by origin (-want +got):\n%s", diff)
	}
}

func TestAProfileIsAddedUpByStacks(t *testing.T) {
	byStack, err := ByStack(encode(t, map[int64][]string{1: {"a.One", "a.Two", "a.Three"}, 2: {"a.One", "b.Two"}}), "space")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"a.One < a.Two < a.Three": 1, "a.One < b.Two": 2}, byStack); diff != "" {
		t.Errorf("by stack (-want +got):\n%s", diff)
	}
}

func TestAProfileWithoutTheTypeIsAnError(t *testing.T) {
	if _, err := ByPackage(encode(t, nil), "time"); err == nil {
		t.Error("no error for a type that the profile does not have")
	}
}

func TestWhatGrewComesFirstAndWhatShrankNotAtAll(t *testing.T) {
	got := Grown(map[string]float64{"same": 5, "less": 9}, map[string]float64{"same": 5, "less": 1, "more": 2, "most": 3, "alike": 2})
	want := []Part{{"most", 3}, {"alike", 2}, {"more", 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("grown (-want +got):\n%s", diff)
	}
	if sum := Sum(got); sum != 7 {
		t.Errorf("sum = %v, want 7", sum)
	}
}

func TestTheProcessTellsWhereItsGoroutinesAre(t *testing.T) {
	before := origins(t)
	stop := make(chan struct{})
	defer close(stop)
	for range 3 {
		go waitFor(stop)
	}
	grown := Grown(before, origins(t))
	want := []Part{{"github.com/berth-dev/berth/bench/internal/probe.waitFor", 3}}
	if diff := cmp.Diff(want, grown); diff != "" {
		t.Errorf("grown (-want +got):\n%s", diff)
	}
}

func waitFor(stop chan struct{}) { <-stop }

func origins(t *testing.T) map[string]float64 {
	t.Helper()
	data, err := Profile("goroutine")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := ByOrigin(data, "goroutine")
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// encode makes a profile of the type "space" after another one.
func encode(t *testing.T, stacks map[int64][]string) []byte {
	t.Helper()
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "objects", Unit: "count"}, {Type: "space", Unit: "bytes"}}}
	for value, functions := range stacks {
		sample := &profile.Sample{Value: []int64{100, value}}
		for _, name := range functions {
			f := &profile.Function{ID: uint64(len(p.Function) + 1), Name: name}
			l := &profile.Location{ID: uint64(len(p.Location) + 1), Line: []profile.Line{{Function: f}}}
			p.Function, p.Location = append(p.Function, f), append(p.Location, l)
			sample.Location = append(sample.Location, l)
		}
		p.Sample = append(p.Sample, sample)
	}
	var out bytes.Buffer
	if err := p.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
