// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// Profile takes a profile that runtime/pprof knows by name, such as "heap", of what is not garbage.
func Profile(name string) ([]byte, error) {
	p := pprof.Lookup(name)
	if p == nil {
		return nil, fmt.Errorf("there is no profile %q", name)
	}
	collect()
	var out bytes.Buffer
	if err := p.WriteTo(&out, 0); err != nil {
		return nil, fmt.Errorf("take %s profile: %w", name, err)
	}
	return out.Bytes(), nil
}

// CPUProfile profiles the process for d.
func CPUProfile(ctx context.Context, d time.Duration) ([]byte, error) {
	var out bytes.Buffer
	if err := pprof.StartCPUProfile(&out); err != nil {
		return nil, fmt.Errorf("take CPU profile: %w", err)
	}
	err := wait(ctx, d)
	pprof.StopCPUProfile()
	return out.Bytes(), err
}

// Part is what one piece of code has of a profile.
type Part struct {
	Code  string
	Value float64
}

// ByPackage adds up a profile's values of a type, such as "inuse_space", by the innermost package that is not Go's own, since
// that a map grew tells nobody why. What is Go's alone, such as a garbage collection, goes by its outermost function.
func ByPackage(data []byte, valueType string) (map[string]float64, error) {
	return addUp(data, valueType, func(inward []string) string {
		for _, function := range slices.Backward(inward) {
			if p := packageOf(function); !standard(p) {
				return p
			}
		}
		return inward[0]
	})
}

// ByOrigin adds up a profile's values of a type by the outermost function that is not Go's own and does not only run
// others: of goroutines, what they are for.
func ByOrigin(data []byte, valueType string) (map[string]float64, error) {
	return addUp(data, valueType, func(inward []string) string {
		for _, function := range inward {
			if p := packageOf(function); !standard(p) && p != runner {
				return function
			}
		}
		return inward[0]
	})
}

// stackShown is how many functions of a stack are shown.
const stackShown = 8

// ByStack adds up a profile's values of a type by the inner end of the stack, the innermost function first.
func ByStack(data []byte, valueType string) (map[string]float64, error) {
	return addUp(data, valueType, func(inward []string) string {
		inner := slices.Clone(inward[max(0, len(inward)-stackShown):])
		slices.Reverse(inner)
		return strings.Join(inner, " < ")
	})
}

// runner only starts and repeats what others want to run.
const runner = "k8s.io/apimachinery/pkg/util/wait"

// addUp adds up by what a stack, from its outermost function inward, is to be blamed on.
func addUp(data []byte, valueType string, blame func(inward []string) string) (map[string]float64, error) {
	p, err := profile.ParseData(data)
	if err != nil {
		return nil, fmt.Errorf("read profile: %w", err)
	}
	index := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == valueType })
	if index < 0 {
		return nil, fmt.Errorf("read profile: it has no %s", valueType)
	}
	sums := map[string]float64{}
	for _, sample := range p.Sample {
		sums[blame(stack(sample))] += float64(sample.Value[index])
	}
	return sums, nil
}

// stack returns the functions of a sample from the outermost inward, at least one.
func stack(s *profile.Sample) (inward []string) {
	for _, location := range slices.Backward(s.Location) {
		for _, line := range slices.Backward(location.Line) {
			if line.Function != nil {
				inward = append(inward, withoutTypes(line.Function.Name))
			}
		}
	}
	if len(inward) == 0 {
		return []string{"unknown"}
	}
	return inward
}

// withoutTypes shortens what a generic function was made for, which has no end.
func withoutTypes(function string) string {
	before, rest, generic := strings.Cut(function, "[")
	if end := strings.LastIndexByte(rest, ']'); generic && end >= 0 {
		return before + "[...]" + rest[end+1:]
	}
	return function
}

// packageOf cuts the package's path from a function's name, such as k8s.io/api/core/v1.(*Pod).Marshal.
func packageOf(function string) string {
	slash := strings.LastIndexByte(function, '/') + 1
	name, _, _ := strings.Cut(function[slash:], ".")
	return function[:slash] + name
}

// standard tells Go's own packages, whose paths begin with a word that is no domain's name.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return first != "main" && !strings.Contains(first, ".")
}

// Grown returns what after has more than before, the most first.
func Grown(before, after map[string]float64) []Part {
	var parts []Part
	for code, value := range after {
		if more := value - before[code]; more > 0 {
			parts = append(parts, Part{code, more})
		}
	}
	slices.SortFunc(parts, func(a, b Part) int {
		return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Code, b.Code))
	})
	return parts
}

// Sum of all parts.
func Sum(parts []Part) (sum float64) {
	for _, p := range parts {
		sum += p.Value
	}
	return sum
}
