// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bench/internal/load"
	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
)

const (
	// failoverClients write to the space, each with failoverPause after each attempt.
	failoverClients, failoverPause = 4, 10 * time.Millisecond
	// failoverTry is how long an attempt may take. A client doesn't wait longer for a shard that is dead.
	failoverTry = time.Second
	// failoverBefore is how long the clients write before the kill, and failoverAfter from the first write after it.
	failoverBefore, failoverAfter = 2 * time.Second, time.Second
	// decisionPoll is how often it is asked whether the operator has decided.
	decisionPoll = 20 * time.Millisecond
	// failoverTime is how long a failover may take.
	failoverTime = time.Minute
	// failoverTarget is how many seconds it should take.
	failoverTarget = 5
)

// failover is a platform of two shards, one of which has a space with a store in a database server.
type failover struct {
	*shardSet
	bench *bench
	space *plane
	// alone are spaces with a file, one on each shard, as a shard takes longer for the first space since its start.
	alone map[string]*plane

	seconds, decided     []float64 // of each kill, until the first write, and until the operator gave the space to the other shard
	acknowledged, failed int       // writes, and attempts
	lost                 []string
}

// measureFailover kills the shard of a space with a store in a database server, while clients write by another shard, and takes the time
// until that acknowledges a write.
func measureFailover(ctx context.Context, b *bench, s *sides) error {
	var errs []error
	var lost []string
	var measured bool
	for _, of := range []struct {
		kind v1alpha1.StoreType
		name string
	}{{v1alpha1.StorePostgreSQL, "failover"}, {v1alpha1.StoreEtcd, "failover_etcd"}} {
		f := &failover{bench: b, alone: map[string]*plane{}}
		err := f.measure(ctx, s, of.kind, of.name)
		lost = append(lost, f.lost...)
		if err != nil {
			errs = append(errs, fmt.Errorf("the store %s: %w", of.kind, err))
		}
		if len(f.seconds) == 0 {
			b.report.Miss(of.name+"_s", "s", err)
			continue
		}
		measured = true
		b.report.Add(of.name+"_s", "s", report.Percentile(f.seconds, 50), 0, report.AtMost(failoverTarget))
		b.report.Add(of.name+"_worst_s", "s", slices.Max(f.seconds), 0, report.Target{})
		b.report.Note("%s_s: the operator gave the space to the other shard after %.3g to %.3g s, %.3g in the median",
			of.name, slices.Min(f.decided), slices.Max(f.decided), report.Percentile(f.decided, 50))
		b.report.Note("%s_s: median of %d, %.3g to %.3g s; %d writes by %d clients were acknowledged, and %d attempts failed",
			of.name, len(f.seconds), slices.Min(f.seconds), slices.Max(f.seconds), f.acknowledged, failoverClients, f.failed)
	}
	if measured {
		b.report.Add("failover_lost_writes", "writes", float64(len(lost)), 0, report.AtMost(0))
	} else {
		b.report.Miss("failover_lost_writes", "writes", errors.Join(errs...))
	}
	if len(lost) > 0 {
		b.report.Note("failover_lost_writes: the first ones are %v", lost[:min(len(lost), 10)])
	}
	return errors.Join(errs...)
}

// measure kills shards in processes of its own.
func (f *failover) measure(ctx context.Context, s *sides, kind v1alpha1.StoreType, name string) (err error) {
	store, closeStore, err := openStore(kind)
	if err != nil {
		return err
	}
	defer closeStore()
	defer func() { err = errors.Join(err, s.endAll()) }()
	if f.shardSet, err = s.shards(ctx, "left", "right"); err != nil {
		return err
	}
	for _, shard := range f.names {
		if f.alone[shard], _, err = f.children[shard].start(ctx, "alone-"+shard); err != nil {
			return err
		}
	}
	if f.space, _, err = f.children["left"].startStored(ctx, "failing-over", store); err != nil {
		return err
	}
	if _, err := s.get(ctx, side.Operator); err != nil { // after the spaces, which it would place
		return err
	}
	for i := range f.bench.failovers {
		dead, err := f.once(ctx)
		if err != nil {
			return err
		}
		if err := f.again(ctx, dead); err != nil {
			return err
		}
		f.bench.say("%s_s: %.3g", name, f.seconds[i])
	}
	return nil
}

// once kills the shard that has the space, waits until the other one serves it, and returns which one is dead.
func (f *failover) once(ctx context.Context) (victim string, err error) {
	ctx, cancel := context.WithTimeout(ctx, failoverTime)
	defer cancel()
	if victim, err = f.has(ctx); err != nil {
		return "", err
	}
	survivor := f.names[(slices.Index(f.names, victim)+1)%len(f.names)]
	w, err := load.StartWriter(ctx, load.Target{Space: f.space.name, Config: f.by(survivor, f.space).config},
		load.Options{Clients: failoverClients, Pause: failoverPause, Timeout: failoverTry})
	if err != nil {
		return "", err
	}
	defer w.Stop()
	if _, err := w.Await(ctx, time.Now().Add(failoverBefore)); err != nil {
		return "", err
	}
	if still, err := f.has(ctx); err != nil || still != victim {
		return "", fmt.Errorf("the space was on shard %s, and is on %s: %w", victim, still, cmp.Or(err, errMoved))
	}
	killed := time.Now()
	f.children[victim].kill()
	var decided time.Time
	var decision errgroup.Group
	decision.Go(func() (err error) {
		decided, err = f.leaves(ctx, victim)
		return err
	})
	first, err := w.Await(ctx, time.Now())
	if err := errors.Join(err, decision.Wait()); err != nil {
		return "", err
	}
	f.seconds, f.decided = append(f.seconds, first.Sub(killed).Seconds()), append(f.decided, decided.Sub(killed).Seconds())
	if _, err := w.Await(ctx, first.Add(failoverAfter)); err != nil {
		return "", err
	}
	w.Stop()
	acknowledged, failed := w.Counts()
	f.acknowledged, f.failed = f.acknowledged+acknowledged, f.failed+failed
	lost, err := w.Lost(ctx)
	if err != nil {
		return "", err
	}
	f.lost = append(f.lost, lost...)
	if now, err := f.has(ctx); err != nil || now != survivor {
		return "", fmt.Errorf("after the death of shard %s, the space is on %q: %w", victim, now, cmp.Or(err, errMoved))
	}
	return victim, nil
}

// errMoved is the error of a space that has moved without a cause.
var errMoved = errors.New("want a space that changes its shard by a failover only")

// has returns the shard that has the space.
func (f *failover) has(ctx context.Context) (string, error) {
	object := &v1alpha1.Space{}
	if err := f.host.Get(ctx, client.ObjectKey{Name: f.space.name}, object); err != nil {
		return "", fmt.Errorf("find the shard of space %s: %w", f.space.name, err)
	}
	return object.Status.Shard, nil
}

// leaves waits until the operator has given the space of a dead shard to another one, and returns when that was seen.
func (f *failover) leaves(ctx context.Context, dead string) (time.Time, error) {
	err := wait.PollUntilContextCancel(ctx, decisionPoll, true, func(ctx context.Context) (bool, error) {
		now, err := f.has(ctx)
		return now != dead, err
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("wait until the operator has found shard %s dead: %w", dead, err)
	}
	return time.Now(), nil
}

// by returns a space as clients see it that reach it by one shard only.
func (f *failover) by(shard string, space *plane) *plane {
	service := &load.Service{}
	service.Add(f.address[shard])
	config := rest.CopyConfig(space.config)
	config.Dial = service.Dial
	return &plane{name: space.name, child: space.child, config: config}
}

// again starts a dead shard, and waits until it serves the space that it has.
func (f *failover) again(ctx context.Context, shard string) error {
	c, err := f.sides.again(ctx, side.ShardPrefix+shard)
	if err != nil {
		return err
	}
	var address string
	if err := c.call(ctx, "Address", struct{}{}, &address); err != nil {
		return err
	}
	f.children[shard], f.address[shard] = c, address
	if err := f.awaitReady(ctx, shard); err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, readyPoll, side.ReadyTime, true, func(ctx context.Context) (bool, error) {
		_, last = f.by(shard, f.alone[shard]).firstAnswer(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until shard %s serves a space again: %w", shard, errors.Join(err, last))
	}
	return nil
}
