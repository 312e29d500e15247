// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"net/netip"
	"runtime"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/quota"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/patches"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster/accessreview"
)

// Config configures a shard. Its functions may be called concurrently.
type Config struct {
	// Dir contains a directory for each space, with the name of the space.
	Dir string
	// ActiveDir is the directory in which the shard records the active spaces. After an unclean end of the process, the
	// next process holds back the spaces that may have caused it; see package crashlog. Nothing is recorded if it is
	// empty.
	ActiveDir string
	// Host reaches the shared cluster; see [syncer.NewHost] for the rights needed.
	Host *rest.Config
	// Sync says what spaces may sync with the host.
	Sync syncer.Options
	// Own are the spaces whose host objects are in the cache from the start, if Sync.OwnOnly is set. Those of others
	// are listed before their first start here.
	Own []string
	// Endpoint returns the URL of a space's API, for its kubeconfigs.
	Endpoint func(space string) string
	// ServingCA returns the PEM bundle that verifies the endpoints. A space reads it each time that it wakes.
	ServingCA func() []byte
	// Settings, if set, returns the admin's settings of a space. The shard calls it at each start and each sleep.
	Settings func(space string) Settings
	// Pods is the address at which the spaces' pods reach this process. While it is not valid, pods have neither the
	// DNS nor the API of their space.
	Pods translate.PodsEndpoint
	// PodsAt, if set, is called at each start of a space, and its result replaces Pods.
	PodsAt func() translate.PodsEndpoint
	// Prepare, if set, creates on the host what a space needs there. The shard calls it before the first start of a
	// space, and again after a start that failed.
	Prepare func(ctx context.Context, space string) error
	// Unprepared, if set, is asked before each other start whether Prepare has to be called again. It must not call the shard.
	Unprepared func(space string) bool
	// Authorizer, if set, is asked after RBAC whether requests in spaces are allowed.
	Authorizer *accessreview.Webhook
	// Quota, if set, returns at each start of a space what holds it to the quota of its tenant; nil if nothing does.
	Quota func(space string) *quota.Gate
	// TenantQuota, if set, returns at each start of a space what tells it of the quota of its tenant; nil if it has none.
	TenantQuota func(space string) func(context.Context) (quota.Report, error)
	// QuotaShort, if set, is called when the host rejected something of a space because the quota in its namespace allows no more. It gets
	// what was requested. It must not block.
	QuotaShort func(space string, requested corev1.ResourceList)

	// Withdraw, if set, is called before a Service of a space leads out of it. It deletes what the host has of syncs that the space doesn't
	// run with, and that could lead to the Service. See [syncer.Config].
	Withdraw func(ctx context.Context, space string, runs []string) error

	// Woken, if set, is called when a start ends, with the time since the space was wanted and the error of the start.
	// It must neither block nor call the shard.
	Woken func(space string, took time.Duration, err error)

	// Changed, if set, is called when the status of a space changes. It must neither block nor call the shard.
	Changed func(space string)

	// NamespacesChanged, if set, is called when a namespace of an awake space is created or deleted; see [Shard.Namespaces]. It must
	// neither block nor call the shard.
	NamespacesChanged func(space string)

	// Traces, if set, gets the spans of the spaces' API servers.
	Traces trace.TracerProvider

	// Idle, if set, returns when a space counts as idle. It must return at once, and must not call the shard. If it is
	// nil, spaces stay awake.
	Idle func(space string) Idle
	// SpacesMax is the maximum number of spaces that are awake at once. When it is reached and another space is wanted,
	// the shard puts the space to sleep that was idle longest. Zero means no limit.
	SpacesMax int
	// StartsMax is the maximum number of spaces that start at once. Default: the number of processors, at least 2.
	StartsMax int
	// WakeTimeout is how long a request waits for its space to wake. Default: one minute.
	WakeTimeout time.Duration

	// Memory is the memory of this process; see [ProcessMemory]. When it runs out, the shard puts the space to sleep
	// that uses most of it. Default: no limit.
	Memory *Memory

	Clock  clock.Clock // the system clock if nil
	Logger klog.Logger
}

// Settings are an admin's settings of one space. The zero value means the defaults.
type Settings struct {
	// Limits contains only the limits that differ from the defaults.
	Limits bounds.Limits
	// Tenant bounds what the spaces of the tenant use together; nil if the space has none.
	Tenant *bounds.Tenant
	// Sync says what is synced of the space, within what Config.Sync allows. Nil means all of that.
	Sync *resources.SyncOptions
	// Patches are changes of the space's pods on the host; nil if there are none.
	Patches *patches.Patches
	// Placement says where the space's pods run.
	Placement translate.Placement
	// Objects are the settings of the space's objects on the host.
	Objects translate.Settings
	// Closed are address ranges that are closed to the space's pods, in addition to those that always are.
	Closed []netip.Prefix
	// HostLimits are those of the LimitRange in the space's namespace on the host.
	HostLimits []corev1.LimitRangeItem
	// Access is what the space enforces of its tenant. It has to be the same source at each call for a space: a space follows
	// its changes without a restart. Nil means nothing.
	Access *access.Source
	// Definitions are those that CRDShares share with the space, as Access: the same source at each call. Nil means none, ever. The shard
	// adds those of the kinds that are synced of the space.
	Definitions *definitions.Source
	// Server returns the database server with the store of the space. It is called at each start, before everything else, and may replace
	// the files in the directory of the space. Nil, or a nil result, means that
	// the store is a file.
	Server func(context.Context) (*kine.Server, error)
	// Replica, if set, follows what is written to a store that is a file.
	Replica kine.Replica
	// Declared are the custom resources that are synced of the space, ordered by name. A space that runs has those of its start; see
	// [Shard.RestartUnless].
	Declared []*declaration.Declaration
}

const (
	defaultWakeTimeout = time.Minute
	// startTimeout limits one start, so that a start that hangs does not block the others.
	startTimeout = 2 * time.Minute

	// settleTime is the minimum time that a space stays awake. Its controllers and its syncer need it to find their
	// work. Only after that can they report that they have none.
	settleTime = 10 * time.Second
	// recheck is the pause after which the shard checks again whether a busy space can sleep.
	recheck = 5 * time.Second
	// inUse is how long a space counts as in use after its last request. Even if too few spaces may be awake, the shard
	// does not put such a space to sleep. Otherwise, one tenant could make the shard start and stop the spaces of
	// others all the time.
	inUse = 10 * time.Second
	// leastSleep is the shortest sleep that is worth the cost of a start.
	leastSleep = time.Minute
	// lead is how long before its timer expires a space is woken. It is about the duration of a start.
	lead = 2 * time.Second

	firstRetry = time.Second // after a failure; doubled with each further one
	lastRetry  = 5 * time.Minute

	// maxHeld is the maximum number of requests that wait for one space to wake.
	maxHeld = 200
)

func (c Config) complete() Config {
	if c.StartsMax <= 0 {
		c.StartsMax = max(2, runtime.GOMAXPROCS(0))
	}
	if c.Settings == nil {
		c.Settings = func(string) Settings { return Settings{} }
	}
	if c.Unprepared == nil {
		c.Unprepared = func(string) bool { return false }
	}
	if c.Idle == nil {
		c.Idle = func(string) Idle { return Idle{} }
	}
	if c.PodsAt == nil {
		c.PodsAt = func() translate.PodsEndpoint { return c.Pods }
	}
	if c.Quota == nil {
		c.Quota = func(string) *quota.Gate { return nil }
	}
	if c.TenantQuota == nil {
		c.TenantQuota = func(string) func(context.Context) (quota.Report, error) { return nil }
	}
	if c.QuotaShort == nil {
		c.QuotaShort = func(string, corev1.ResourceList) {}
	}
	if c.Changed == nil {
		c.Changed = func(string) {}
	}
	if c.NamespacesChanged == nil {
		c.NamespacesChanged = func(string) {}
	}
	if c.WakeTimeout <= 0 {
		c.WakeTimeout = defaultWakeTimeout
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c
}
