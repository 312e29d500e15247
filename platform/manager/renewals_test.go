// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/vcluster/pki"
)

// renewed notes which spaces were put to sleep and woken.
type renewed struct {
	busy string // can't be put to sleep
	gone string // deleted since
	did  []string
}

func (r *renewed) Names() []string { return []string{"a", "b"} }

func (r *renewed) Sleep(_ context.Context, space string) error {
	switch space {
	case r.busy:
		return errors.New("the space is in use")
	case r.gone:
		return fmt.Errorf("sleep space %s: %w", space, shard.ErrUnknown)
	}
	r.did = append(r.did, "sleep "+space)
	return nil
}

func (r *renewed) WarmUp(space string) { r.did = append(r.did, "wake "+space) }

// X4: a process that runs for years has each space publish the port's next
// authority while both are trusted. One that can't is tried again by itself: its
// neighbours' requests are not cut for it, hour after hour.
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
		gone   string
		want   []string
	}{
		{"nothing is new", 6 * year, "", "", nil},
		{"the next one is published", 15 * year / 10, "b", "", []string{"sleep a", "wake a", "wake b"}},
		{"one is busy still", time.Hour, "b", "", []string{"wake b"}},
		{"one was busy", time.Hour, "", "", []string{"sleep b", "wake b"}},
		{"all have it", time.Hour, "", "", nil},
		{"it signs, which changes nothing", year, "", "", nil},
		{"the old one has ended", 2 * year, "b", "", []string{"sleep a", "wake a", "wake b"}},
		{"the one that was busy is gone", time.Hour, "", "b", nil},
		{"nothing is left of it", time.Hour, "", "", nil},
	} {
		clock.SetTime(clock.Now().Add(step.after))
		spaces.busy, spaces.gone, spaces.did = step.busy, step.gone, nil
		p.publish(t.Context())
		if !slices.Equal(spaces.did, step.want) {
			t.Errorf("%s: did %q, want %q", step.reason, spaces.did, step.want)
		}
	}
}
