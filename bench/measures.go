// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
)

// group is a few measures that are taken together.
type group struct {
	name     string
	measures []string // those that the project's goals name
	run      func(context.Context, *bench, *sides) error
}

func groups() []group {
	return []group{
		{"writes", []string{"writes_per_s", "write_errors"}, measureWrites},
		{"stores", []string{"store_writes_per_s", "store_list_5000_s", "store_write_errors"}, measureStores},
		{"pods", []string{"pod_to_host_ms_p50", "pod_to_host_ms_p99"}, measurePods},
		{"burst", []string{"burst_pods_per_s"}, measureBurst},
		{"quota", []string{"quota_pod_to_host_more_ms", "quota_burst_pods_per_s"}, measureQuota},
		{"many", []string{"pods_10000_s"}, measureMany},
		{"gateway", []string{"gateway_p50_ratio", "gateway_p99_ratio"}, measureGateway},
		{"noisy", []string{"noisy_p99_ratio"}, measureNoisy},
		{"watch", []string{"watch_p99_s"}, measureWatch},
		{"list", []string{"list_5000_s"}, measureList},
		{"awake", []string{"rss_awake_mib", "create_s", "create_s_p99", "idle_cpu_cores_100"}, measureAwake},
		{"crds", []string{"crd_rss_kib", "crd_serve_s"}, measureDefinitions},
		{"share", []string{"share_500_s"}, measureShare},
		{"custom", []string{"custom_200_s"}, measureCustom},
		{"asleep", []string{"rss_asleep_kib", "wake_s", "wake_s_p99"}, measureAsleep},
		{"life", []string{"restart_ready_s", "delete_space_s"}, measureLife},
		{"tenants", []string{"tenants_1000_s", "operator_rss_mib"}, measureTenants},
		{"move", []string{"move_s", "move_held_s_p99", "move_failed_requests"}, measureMove},
		{"failover", []string{"failover_s", "failover_etcd_s", "failover_lost_writes"}, measureFailover},
		{"upgrade", []string{"upgrade_failed_requests"}, measureUpgrade},
		{"sleepers", []string{"asleep_10000_mib", "restart_10000_s"}, measureSleepers},
	}
}

// wanted reports whether -only asks for the group, of all there are. The name of a group is that group's alone: measures of others
// may begin with it.
func (g group) wanted(only string, all []group) bool {
	if only == "" {
		return true
	}
	for want := range strings.SplitSeq(only, ",") {
		if slices.ContainsFunc(all, func(other group) bool { return other.name == want && g.name != want }) {
			continue
		}
		if slices.ContainsFunc(append(g.measures, g.name), func(name string) bool { return strings.HasPrefix(name, want) }) {
			return true
		}
	}
	return false
}

// measure takes what -only asks for. A group that fails does not keep the others from being measured.
func (b *bench) measure(ctx context.Context) error {
	var errs []error
	all := groups()
	if b.space != "" {
		all = clusterGroups()
	}
	for _, g := range all {
		if !g.wanted(b.only, all) || ctx.Err() != nil {
			continue
		}
		b.say("measuring %s: %s", g.name, strings.Join(g.measures, ", "))
		if err := b.inFreshSides(ctx, g); err != nil {
			errs = append(errs, fmt.Errorf("measure %s: %w", g.name, err))
		}
	}
	return errors.Join(errs...)
}

// sides are the processes of a group, each started when it is first asked for.
type sides struct {
	bench   *bench
	running map[string]*child
	host    []byte   // kubeconfig of the host cluster, once it is there
	flooded []byte   // kubeconfig of the space that is flooded, if one is
	env     []string // of the processes
	// idleAfter is when a space that woke by itself sleeps again. Never where awake ones are measured.
	idleAfter time.Duration
}

// inFreshSides gives each group processes of its own: what one leaves behind is not part of the next one's figures.
func (b *bench) inFreshSides(ctx context.Context, g group) (err error) {
	s := &sides{bench: b, running: map[string]*child{}}
	defer func() { err = errors.Join(err, s.endAll()) }()
	return g.run(ctx, b, s)
}

// endAll ends what runs, each after what needs it.
func (s *sides) endAll() error {
	var errs []error
	for name := range s.running {
		if strings.HasPrefix(name, side.ShardPrefix) {
			errs = append(errs, s.end(name))
		}
	}
	return errors.Join(errors.Join(errs...), s.end(side.Flood), s.end(side.Berth), s.end(side.Platform), s.end(side.Operator), s.end(side.Stock), s.end(side.Host))
}

// end ends a side's process, if it runs.
func (s *sides) end(name string) error {
	c := s.running[name]
	delete(s.running, name)
	if c == nil {
		return nil
	}
	return c.stop()
}

const (
	quietTime  = time.Minute
	quietCheck = 500 * time.Millisecond
	quietCores = 0.1
)

// quiet waits until what was done last has had all its consequences: until processes, those of them that run, do next to nothing.
func (s *sides) quiet(ctx context.Context, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, quietTime)
	defer cancel()
	for _, name := range names {
		c := s.running[name]
		for cores := 1.0; c != nil && cores > quietCores; {
			if err := c.call(ctx, "CPU", quietCheck, &cores); err != nil {
				return fmt.Errorf("wait until %s is quiet: %w", name, err)
			}
		}
	}
	return nil
}

// get returns the process of a side.
func (s *sides) get(ctx context.Context, name string) (*child, error) {
	if c := s.running[name]; c != nil {
		return c, nil
	}
	if name == side.Berth || name == side.Platform || name == side.Operator || strings.HasPrefix(name, side.ShardPrefix) {
		if err := s.findHost(ctx); err != nil {
			return nil, err
		}
	}
	c, err := startChild(ctx, name, s.args(), s.bench.apart, s.env...)
	if err != nil {
		return nil, err
	}
	s.running[name] = c
	return c, nil
}

// again starts a process that was killed, with the data that it had.
func (s *sides) again(ctx context.Context, name string) (*child, error) {
	killed := s.running[name]
	delete(s.running, name)
	c, err := startChildIn(ctx, killed.dir, name, s.args(), s.bench.apart, s.env...)
	if err != nil {
		return nil, err
	}
	s.running[name] = c
	return c, nil
}

func (s *sides) args() side.OpenArgs {
	return side.OpenArgs{Host: s.host, IdleAfter: s.idleAfter, Flooded: s.flooded}
}

func (s *sides) findHost(ctx context.Context) (err error) {
	if s.bench.host != "" {
		if s.host, err = os.ReadFile(s.bench.host); err != nil {
			return fmt.Errorf("-host-kubeconfig: %w", err)
		}
		return nil
	}
	c, err := s.get(ctx, side.Host)
	if err != nil {
		return err
	}
	return c.call(ctx, "Start", "", &s.host)
}

// platform returns the process of a platform whose host has an operator, too.
func (s *sides) platform(ctx context.Context) (*child, error) {
	if _, err := s.get(ctx, side.Operator); err != nil {
		return nil, err
	}
	return s.get(ctx, side.Platform)
}

// hostPlane is the host cluster as a client of it sees it. It is there once the berth side is.
func (s *sides) hostPlane() (*plane, error) { return newPlane(s.running[side.Host], "host", s.host) }

// both starts a space and a stock control plane for a measure.
func (s *sides) both(ctx context.Context, name string) (berth, stock *plane, err error) {
	return s.bothStored(ctx, name, side.Store{})
}

// bothStored is both with a store of the space.
func (s *sides) bothStored(ctx context.Context, name string, store side.Store) (berth, stock *plane, err error) {
	spaces, err := s.get(ctx, side.Berth)
	if err != nil {
		return nil, nil, err
	}
	if berth, _, err = spaces.startStored(ctx, name, store); err != nil {
		return nil, nil, err
	}
	peers, err := s.get(ctx, side.Stock)
	if err != nil {
		return nil, nil, err
	}
	stock, _, err = peers.start(ctx, name)
	return berth, stock, err
}

// pair holds what repeats of a measure gave on either side.
type pair struct{ berth, stock []float64 }

// inTurn repeats a measure on both sides, one after the other, so that whatever else the machine does meets both alike. Each goes
// first as often as the other: what one leaves to be done meets the next.
//
// With -profiles it also takes a profile of space's process while that is measured once more, for whoever wants to know why.
func (b *bench) inTurn(ctx context.Context, name string, repeats int, space *plane, berth, stock func(repeat int) (float64, error)) (p pair, err error) {
	for i := range repeats {
		sides := []struct {
			f  func(int) (float64, error)
			to *[]float64
		}{{stock, &p.stock}, {berth, &p.berth}}
		if i%2 > 0 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			value, err := side.f(i)
			if err != nil {
				return pair{}, err
			}
			*side.to = append(*side.to, value)
		}
		b.say("%s: berth %.4g, stock %.4g", name, p.berth[i], p.stock[i])
	}
	if b.profiles == "" {
		return p, nil
	}
	return p, b.profileOnce(ctx, name, space.child, repeats, berth)
}

// profileOnce measures a side once more, for its profile only.
func (b *bench) profileOnce(ctx context.Context, name string, c *child, repeats int, measure func(repeat int) (float64, error)) error {
	var data []byte
	var profiling errgroup.Group
	profiling.Go(func() (err error) {
		data, err = c.profile(ctx, side.ProfileArgs{Kind: side.CPUProfile, For: loadProfileTime})
		return err
	})
	_, err := measure(repeats)
	if err := errors.Join(err, profiling.Wait()); err != nil {
		return err
	}
	return b.keepProfile(side.CPUProfile+"-"+name, data)
}

// addTotal adds the rates over all repeats together, as rates of the same work: single ones are far apart on both sides. It notes
// the median of the ratios of neighbors, which should be about the same.
func (b *bench) addTotal(name, unit string, p pair, target report.Target) {
	ratios := make([]float64, len(p.berth))
	for i := range ratios {
		ratios[i] = p.berth[i] / p.stock[i]
	}
	b.report.Add(name, unit, report.TotalRate(p.berth), report.TotalRate(p.stock), target)
	b.report.Note("%s: all of %d together, median of their ratios %.0f %%; berth %.4g to %.4g, stock %.4g to %.4g", name, len(p.berth),
		100*report.Percentile(ratios, 50), slices.Min(p.berth), slices.Max(p.berth), slices.Min(p.stock), slices.Max(p.stock))
}

// add adds the medians of a pair, and notes how far the repeats were apart.
func (b *bench) add(name, unit string, p pair, target report.Target) {
	b.report.Add(name, unit, report.Percentile(p.berth, 50), report.Percentile(p.stock, 50), target)
	b.report.Note("%s: median of %d; berth %.4g to %.4g, stock %.4g to %.4g", name, len(p.berth),
		slices.Min(p.berth), slices.Max(p.berth), slices.Min(p.stock), slices.Max(p.stock))
}
