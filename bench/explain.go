// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/bench/internal/probe"
	"github.com/berth-dev/berth/bench/internal/side"
)

const (
	// profileTime is how long CPU use is profiled.
	profileTime = 30 * time.Second
	// loadProfileTime is the same under load.
	loadProfileTime = 5 * time.Second
	// reasons is how many lines of a profile are shown.
	reasons = 12
)

// profile takes the profiles that tell where memory is.
func (b *bench) profile(ctx context.Context, c *child, when string) (map[string][]byte, error) {
	taken := map[string][]byte{}
	for _, kind := range []string{"heap", "goroutine"} {
		data, err := c.profile(ctx, side.ProfileArgs{Kind: kind})
		if err != nil {
			return nil, err
		}
		taken[kind] = data
		if err := b.keepProfile(kind+"-"+when, data); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

// keepProfiles takes them for whoever wants to know more, if anybody does.
func (b *bench) keepProfiles(ctx context.Context, c *child, when string) error {
	if b.profiles == "" {
		return nil
	}
	_, err := b.profile(ctx, c, when)
	return err
}

func (b *bench) keepProfile(name string, data []byte) error {
	if b.profiles == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(b.profiles, name+".pb.gz"), data, 0o600); err != nil {
		return fmt.Errorf("-profiles: %w", err)
	}
	return nil
}

// explainMemory notes what the memory of each of n spaces is for.
func (b *bench) explainMemory(what string, before, after map[string][]byte, n int) error {
	heap, err := grown(before["heap"], after["heap"], "inuse_space", probe.ByPackage)
	if err != nil {
		return err
	}
	b.note("live heap of "+what+", KiB by package", heap, 1/float64(n)/(1<<10))
	goroutines, err := grown(before["goroutine"], after["goroutine"], "goroutine", probe.ByOrigin)
	if err != nil {
		return err
	}
	b.note("goroutines of "+what+" by what they are for", goroutines, 1/float64(n))
	return nil
}

// explainCPU notes what idle spaces are busy with.
func (b *bench) explainCPU(ctx context.Context, c *child) error {
	data, err := c.profile(ctx, side.ProfileArgs{Kind: side.CPUProfile, For: profileTime})
	if err != nil {
		return err
	}
	if err := b.keepProfile(side.CPUProfile, data); err != nil {
		return err
	}
	for _, by := range []struct {
		title string
		grouping
	}{{"package", probe.ByPackage}, {"what it is for", probe.ByOrigin}} {
		sums, err := by.grouping(data, "cpu")
		if err != nil {
			return err
		}
		b.note("CPU of idle spaces, milliseconds a second by "+by.title, probe.Grown(nil, sums), 1/float64(profileTime.Milliseconds())/1000)
	}
	return nil
}

// grouping adds up a profile.
type grouping func(data []byte, valueType string) (map[string]float64, error)

func grown(before, after []byte, valueType string, by grouping) ([]probe.Part, error) {
	old, err := by(before, valueType)
	if err != nil {
		return nil, err
	}
	now, err := by(after, valueType)
	if err != nil {
		return nil, err
	}
	return probe.Grown(old, now), nil
}

// note notes the greatest parts of a profile, each times scale.
func (b *bench) note(title string, parts []probe.Part, scale float64) {
	sum := probe.Sum(parts)
	b.report.Detail("\n%s: %.4g in all", title, sum*scale)
	for _, p := range parts[:min(reasons, len(parts))] {
		b.report.Detail("  %8.3f  %4.1f %%  %s", p.Value*scale, 100*p.Value/sum, p.Code)
	}
}
