// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"net/netip"
	"runtime"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// Config says where a shard's spaces live, and when they sleep.
type Config struct {
	// Dir holds a directory for each space, named for it.
	Dir string
	// ActiveDir holds notes of which spaces are active, so that what ended the
	// process uncleanly is held back at its next start; see package crashlog. None
	// are kept if it is empty.
	ActiveDir string
	// Host reaches the shared cluster; see [syncer.NewHost] for the rights needed.
	Host *rest.Config
	// Sync says what may be synced with it.
	Sync syncer.Options
	// Endpoint is the URL of a space's API, for its kubeconfigs.
	Endpoint func(space string) string
	// ServingCA returns the PEM bundle that verifies the endpoints. A space that
	// wakes takes the one of that moment.
	ServingCA func() []byte
	// Settings, if set, returns the admin's settings of a space. It is called at each start and sleep.
	Settings func(space string) Settings
	// Pods is where the spaces' pods reach this process. They reach no DNS and no
	// API of their space while it is not valid.
	Pods translate.PodsEndpoint
	// PodsAt, if set, returns what takes the place of Pods when a space starts.
	PodsAt func() translate.PodsEndpoint
	// Prepare, if set, makes on the host what a space stands on. It is called
	// before a space's first start here, and again after a start that failed.
	Prepare func(ctx context.Context, space string) error
	// Woken, if set, is told of each start that ended: how long after the space
	// was wanted, and with what error. It must not block, nor call the shard.
	Woken func(space string, took time.Duration, err error)

	// Changed, if set, is told of each space whose status is another than before. It
	// must not block, nor call the shard.
	Changed func(space string)

	// Traces, if set, gets spans of what the spaces' API servers do.
	Traces trace.TracerProvider

	// Idle, if set, says when a space is idle. It must be fast, and must not call the
	// shard. Without it, spaces stay awake.
	Idle func(space string) Idle
	// SpacesMax bounds the spaces that are awake at once. At the bound, the one
	// that was idle longest is put to sleep. No bound if zero.
	SpacesMax int
	// StartsMax bounds the spaces that start at once. Default: the number of
	// processors, at least 2.
	StartsMax int
	// WakeTimeout is how long a request is held until its space is awake.
	// Default: a minute.
	WakeTimeout time.Duration

	// Memory is that of the process, see [ProcessMemory]. If it runs out, the
	// space that takes most of it is put to sleep. Default: it has no limit.
	Memory *Memory

	Clock  clock.Clock // the system clock if nil
	Logger klog.Logger
}

// Settings are the admin's for one space. The zero value has the defaults.
type Settings struct {
	// Limits are those that differ from the defaults.
	Limits bounds.Limits
	// Sync says what is synced of the space, within what Config.Sync offers; all of that if nil.
	Sync *resources.SyncOptions
	// Placement says where the space's pods run.
	Placement translate.Placement
	// Objects are about the space's objects on the host.
	Objects translate.Settings
	// Closed are address ranges that are closed to the space's pods, besides those that always are.
	Closed []netip.Prefix
}

const (
	defaultWakeTimeout = time.Minute
	// startTimeout bounds one start, so that one that hangs gives its turn back.
	startTimeout = 2 * time.Minute

	// settleTime is how long a space stays awake at least: its controllers and
	// its syncer have to see what there is to do before they can be asked
	// whether there is anything.
	settleTime = 10 * time.Second
	// recheck is the pause before a space that could not sleep is asked again.
	recheck = 5 * time.Second
	// inUse is how long after its last request a space counts as in use: even
	// where places are scarce it is left alone, so that nobody can keep others'
	// spaces starting and stopping.
	inUse = 10 * time.Second
	// leastNap is the shortest sleep that is worth a start.
	leastSleep = time.Minute
	// lead is how long before its timer a space is woken: about a start.
	lead = 2 * time.Second

	firstRetry = time.Second // after a failure; doubled with each further one
	lastRetry  = 5 * time.Minute

	// maxHeld bounds the requests that wait for one space.
	maxHeld = 200
)

func (c Config) complete() Config {
	if c.StartsMax <= 0 {
		c.StartsMax = max(2, runtime.GOMAXPROCS(0))
	}
	if c.Settings == nil {
		c.Settings = func(string) Settings { return Settings{} }
	}
	if c.Idle == nil {
		c.Idle = func(string) Idle { return Idle{} }
	}
	if c.PodsAt == nil {
		c.PodsAt = func() translate.PodsEndpoint { return c.Pods }
	}
	if c.Changed == nil {
		c.Changed = func(string) {}
	}
	if c.WakeTimeout <= 0 {
		c.WakeTimeout = defaultWakeTimeout
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c
}
