// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/vcluster/pki"
)

// renewed notes which spaces were put to sleep and woken.
type renewed struct {
	busy string // can't be put to sleep
	did  []string
}

func (r *renewed) Names() []string { return []string{"a", "b"} }

func (r *renewed) Sleep(_ context.Context, space string) error {
	if space == r.busy {
		return errors.New("it is in use")
	}
	r.did = append(r.did, "sleep "+space)
	return nil
}

func (r *renewed) Visit(space string) { r.did = append(r.did, "wake "+space) }

// X4: a process that runs for years has each space publish the port's next
// authority while both are trusted.
func TestSpacesPublishThePortsNextAuthority(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	ca, err := pki.OpenCAWithClock(t.TempDir(), "berth", clock)
	if err != nil {
		t.Fatal(err)
	}
	spaces := &renewed{}
	p := &publisher{spaces: spaces, port: ca.PEM, published: ca.PEM(), logger: klog.Background()}
	const year = 365 * 24 * time.Hour
	for _, step := range []struct {
		reason string
		after  time.Duration
		busy   string
		want   []string
	}{
		{"nothing is new", 6 * year, "", nil},
		{"the next one is published", 15 * year / 10, "b", []string{"sleep a", "wake a", "wake b"}},
		{"one was busy", time.Hour, "", []string{"sleep a", "wake a", "sleep b", "wake b"}},
		{"all have it", time.Hour, "", nil},
		{"it signs, which changes nothing", year, "", nil},
		{"the old one has ended", 2 * year, "", []string{"sleep a", "wake a", "sleep b", "wake b"}},
	} {
		clock.SetTime(clock.Now().Add(step.after))
		spaces.busy, spaces.did = step.busy, nil
		p.publish(t.Context())
		if !slices.Equal(spaces.did, step.want) {
			t.Errorf("%s: did %q, want %q", step.reason, spaces.did, step.want)
		}
	}
}
