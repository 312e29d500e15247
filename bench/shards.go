// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bench/internal/load"
	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
)

const (
	// movedObject is how many bytes an object of a space that moves has.
	movedObject = 32 << 10
	// moveClients is how many clients use a space that moves, and movePause the pause between two requests of each.
	moveClients, movePause = 20, 50 * time.Millisecond
	// firstMoves are those that are not of the others: to a shard that has had no space since its start, and back.
	firstMoves = 2
	// withoutMoves is how long the load is measured before the first move, and after the upgrade.
	withoutMoves = 5 * time.Second
	// moveTime is how long a move may take.
	moveTime = time.Minute
	// upgradePause is the pause between two requests of the client of a space while shards restart.
	upgradePause = 100 * time.Millisecond
	// heldTime is the time from which a request counts as held.
	heldTime = 250 * time.Millisecond
	// heldTarget is how many seconds a request may be held by a move.
	heldTarget = 1
	// loadTimeout is how long a request may take.
	loadTimeout = time.Minute
)

// shardSet are shards of one platform, which clients reach by a Service.
type shardSet struct {
	sides    *sides
	host     client.Client
	service  *load.Service
	names    []string
	children map[string]*child
	address  map[string]string
}

// shards starts shards.
func (s *sides) shards(ctx context.Context, names ...string) (*shardSet, error) {
	set := &shardSet{sides: s, service: &load.Service{}, names: names, children: map[string]*child{}, address: map[string]string{}}
	for _, name := range names {
		c, err := s.get(ctx, side.ShardPrefix+name)
		if err != nil {
			return nil, err
		}
		var address string
		if err := c.call(ctx, "Address", struct{}{}, &address); err != nil {
			return nil, err
		}
		set.children[name], set.address[name] = c, address
		set.service.Add(address)
	}
	host, err := s.hostPlane()
	if err != nil {
		return nil, err
	}
	known := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(known); err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	if set.host, err = client.New(rest.CopyConfig(host.config), client.Options{Scheme: known}); err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	for _, name := range names {
		if err := set.awaitReady(ctx, name); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// awaitReady waits until the Shard object says that the shard is ready.
func (s *shardSet) awaitReady(ctx context.Context, name string) error {
	shard := &v1alpha1.Shard{}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, side.ReadyTime, true, func(ctx context.Context) (bool, error) {
		err := s.host.Get(ctx, client.ObjectKey{Namespace: side.ShardNamespace, Name: name}, shard)
		return meta.IsStatusConditionTrue(shard.Status.Conditions, v1alpha1.ConditionReady), client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("wait until shard %s is ready: %w", name, err)
	}
	return nil
}

// target makes a space one of a load, whose clients reach it by the Service.
func (s *shardSet) target(space *plane) load.Target {
	config := rest.CopyConfig(space.config)
	config.Dial = s.service.Dial
	return load.Target{Space: space.name, Config: config}
}

// move moves a space, and returns when its object names the other shard.
func (s *shardSet) move(ctx context.Context, space, to string) error {
	ctx, cancel := context.WithTimeout(ctx, moveTime)
	defer cancel()
	object := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: space}}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"status":{"movingTo":%q}}`, to))
	if err := s.host.Status().Patch(ctx, object, patch); err != nil {
		return fmt.Errorf("move space %s: %w", space, err)
	}
	err := wait.PollUntilContextCancel(ctx, readyPoll, true, func(ctx context.Context) (bool, error) {
		err := s.host.Get(ctx, client.ObjectKeyFromObject(object), object)
		return object.Status.Shard == to, err
	})
	if err != nil {
		return fmt.Errorf("wait until space %s is on shard %s: %w", space, to, err)
	}
	return nil
}

// measureMove moves a space with a large store back and forth between two shards while clients use it.
func measureMove(ctx context.Context, b *bench, s *sides) error {
	set, err := s.shards(ctx, "left", "right")
	if err != nil {
		return err
	}
	space, _, err := set.children["left"].start(ctx, "moved")
	if err != nil {
		return err
	}
	b.say("move: writing %d MiB of objects", b.moveMiB)
	if err := b.fillStore(ctx, space); err != nil {
		return err
	}
	size, err := os.Stat(filepath.Join(set.children["left"].dir, "spaces", space.name, "store.db"))
	if err != nil {
		return fmt.Errorf("find the store: %w", err)
	}
	running, err := load.Start(ctx, []load.Target{set.target(space)}, load.Options{Clients: moveClients, Pause: movePause, Held: heldTime, Timeout: loadTimeout})
	if err != nil {
		return err
	}
	defer func() { _ = running.Stop() }()
	if err := running.Settle(ctx); err != nil {
		return err
	}
	if err := rested(ctx, withoutMoves, running); err != nil {
		return err
	}
	before, sum := running.TakeAll(), load.Stats{}
	var held, whole []float64
	first := load.Stats{}
	for i := range firstMoves + b.moves {
		began := time.Now()
		if err := set.move(ctx, space.name, []string{"right", "left"}[i%2]); err != nil {
			return err
		}
		whole = append(whole, time.Since(began).Seconds())
		if err := running.Settle(ctx); err != nil {
			return err
		}
		stats := running.TakeAll()
		b.say("move: took %.3g s; of %d requests, %d failed, and the slowest took %s", whole[i], stats.Requests, stats.Failed, stats.Longest)
		sum.Add(stats)
		if i < firstMoves {
			first.Add(stats)
			continue
		}
		held = append(held, stats.Longest.Seconds())
	}
	b.report.Add("move_first_held_s", "s", first.Longest.Seconds(), 0, report.Target{})
	b.addMoves(before, sum, held, whole[firstMoves:], mib(uint64(size.Size())))
	return set.noteMoves(b)
}

func (b *bench) addMoves(before, sum load.Stats, held, whole []float64, storeMiB float64) {
	r := &b.report
	r.Add("move_s", "s", report.Percentile(whole, 50), 0, report.Target{})
	r.Add("move_held_s_p50", "s", report.Percentile(held, 50), 0, report.Target{})
	r.Add("move_held_s_p99", "s", report.Percentile(held, 99), 0, report.AtMost(heldTarget))
	r.Add("move_failed_requests", "requests", float64(sum.Failed), 0, report.AtMost(0))
	r.Note("move_first_held_s: the longest request of the %d moves before the others, of which the first is to a shard that has had no space since its start", firstMoves)
	r.Note("move_s: %d moves of a store of %.0f MiB under %d clients, %.3g to %.3g s; the longest request of each move, %.3g to %.3g s; %d requests, of which %d took longer than %s",
		len(whole), storeMiB, moveClients, slices.Min(whole), slices.Max(whole), slices.Min(held), slices.Max(held), sum.Requests, sum.Held, heldTime)
	r.Note("move_s: without a move, the slowest of %d requests took %s, and the p99 was %s", before.Requests, before.Longest, before.Percentile(99))
	if sum.FirstFailure != nil {
		r.Note("move_failed_requests: the first one failed with: %v", sum.FirstFailure)
	}
}

// fillStore writes objects that don't compress, each as large as a larger ConfigMap.
func (b *bench) fillStore(ctx context.Context, space *plane) error {
	clients, disconnect, err := space.clients(b.bursters)
	if err != nil {
		return err
	}
	defer disconnect()
	group, ctx := errgroup.WithContext(ctx)
	for c, client := range clients {
		group.Go(func() error {
			random := make([]byte, movedObject/2)
			for i := c; i < b.moveMiB<<20/movedObject; i += len(clients) {
				_, _ = rand.Read(random)
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("fill-", i)}, Data: map[string]string{"data": hex.EncodeToString(random)}}
				if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{}); err != nil {
					return fmt.Errorf("fill space %s: %w", space.name, err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// rested lets a load run for a while.
func rested(ctx context.Context, d time.Duration, l *load.Load) error {
	l.Take()
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// noteMoves notes what the shards logged of the moves.
func (s *shardSet) noteMoves(b *bench) error {
	var waited, took []float64
	for _, name := range s.names {
		log, err := os.ReadFile(filepath.Join(s.children[name].dir, side.ShardLog))
		if err != nil {
			return fmt.Errorf("read the log of shard %s: %w", name, err)
		}
		lines := bufio.NewScanner(bytes.NewReader(log))
		for lines.Scan() {
			var line struct {
				Message string `json:"msg"`
				Took    any
				Waited  time.Duration `json:"requestsWaited"`
			}
			if json.Unmarshal(lines.Bytes(), &line) != nil || line.Message != "Moved a space to another shard" {
				continue
			}
			waited = append(waited, line.Waited.Seconds())
			b.say("shard %s: %s", name, lines.Text())
			if nanoseconds, is := line.Took.(float64); is {
				took = append(took, time.Duration(nanoseconds).Seconds())
			}
		}
	}
	if len(waited) == 0 {
		return errors.New("the shards logged no move")
	}
	b.report.Note("the shards' logs of %d moves: requestsWaited %.3g s in the median, %.3g at most; took %.3g s in the median", len(waited),
		report.Percentile(waited, 50), slices.Max(waited), report.Percentile(took, 50))
	return nil
}

// measureUpgrade restarts three shards one after the other while clients use their spaces.
func measureUpgrade(ctx context.Context, b *bench, s *sides) error {
	names := []string{"one", "two", "three"}
	set, err := s.shards(ctx, names...)
	if err != nil {
		return err
	}
	b.say("upgrade: creating %d spaces", b.upgradeSpaces)
	targets := make([]load.Target, b.upgradeSpaces)
	group, creating := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range targets {
		group.Go(func() error {
			space, _, err := set.children[names[i%len(names)]].start(creating, fmt.Sprint("upgraded-", i))
			if err == nil {
				targets[i] = set.target(space)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if _, err := s.get(ctx, side.Operator); err != nil {
		return err
	}
	running, err := load.Start(ctx, targets, load.Options{Clients: 1, Pause: upgradePause, Held: heldTime, Timeout: loadTimeout})
	if err != nil {
		return err
	}
	defer func() { _ = running.Stop() }()
	if err := errors.Join(running.Settle(ctx), rested(ctx, withoutMoves, running)); err != nil {
		return err
	}
	before := running.TakeAll()
	began := time.Now()
	for _, name := range names {
		set.service.Remove(set.address[name]) // as a Service does with a pod that stops
		var took time.Duration
		restarted := time.Now()
		if err := set.children[name].call(ctx, "Restart", struct{}{}, &took); err != nil {
			return err
		}
		if err := set.awaitReady(ctx, name); err != nil {
			return err
		}
		set.service.Add(set.address[name])
		b.say("upgrade: shard %s was drained, and serves again after %.3g s, of which the start took %.3g s", name, time.Since(restarted).Seconds(), took.Seconds())
	}
	if err := running.Settle(ctx); err != nil {
		return err
	}
	took, stats := time.Since(began), running.TakeAll()
	r := &b.report
	r.Add("upgrade_failed_requests", "requests", float64(stats.Failed), 0, report.AtMost(0))
	r.Add("upgrade_ms_p99", "ms", stats.Percentile(99).Seconds()*1e3, before.Percentile(99).Seconds()*1e3, report.Target{})
	r.Add("upgrade_held_s", "s", stats.Longest.Seconds(), before.Longest.Seconds(), report.Target{})
	r.Note("upgrade_failed_requests: %d requests to %d spaces while %d shards restarted in %.0f s; %d took longer than %s; stock is %d requests of the same load without a restart",
		stats.Requests, len(targets), len(names), took.Seconds(), stats.Held, heldTime, before.Requests)
	if stats.FirstFailure != nil {
		r.Note("upgrade_failed_requests: the first one failed with: %v", stats.FirstFailure)
	}
	return set.noteMoves(b)
}
