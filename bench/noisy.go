// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
	"github.com/berth-dev/berth/bounds"
)

const (
	// noisyRounds is how often the noise begins and ends.
	noisyRounds = 8
	// quietEvery is how often the client of a quiet space asks something. It does not wait for the answer before, so that a
	// slow answer does not hide that the next ones would have been slow.
	quietEvery = 200 * time.Millisecond
)

// measureNoisy takes the latency of light work of many tenants in their spaces, with and without another tenant that floods a space in
// the same process.
func measureNoisy(ctx context.Context, b *bench, s *sides) error {
	platform, err := s.platform(ctx)
	if err != nil {
		return err
	}
	quiet := make([]kubernetes.Interface, b.quietSpaces)
	for i := range quiet {
		space, _, err := platform.start(ctx, side.TenantName(1+i))
		if err != nil {
			return err
		}
		client, disconnect, err := space.client()
		if err != nil {
			return err
		}
		defer disconnect()
		quiet[i] = client
	}
	if err := platform.call(ctx, "Start", side.TenantName(0), &s.flooded); err != nil {
		return err
	}
	loud, err := newPlane(platform, "noisy", s.flooded)
	if err != nil {
		return err
	}
	if err := errors.Join(loud.awaitWrite(ctx), fillNoisy(ctx, loud)); err != nil {
		return err
	}
	flood, err := s.get(ctx, side.Flood)
	if err != nil {
		return err
	}
	flooded := func(round int, work func() error) error {
		if err := flood.call(ctx, "Start", fmt.Sprint(round), new([]byte)); err != nil {
			return err
		}
		return errors.Join(work(), flood.call(ctx, "Stop", fmt.Sprint(round), new(struct{})))
	}
	var p, memory pair
	var ratios []float64
	for round := range noisyRounds {
		if err := s.quiet(ctx, side.Platform, side.Operator, side.Host); err != nil {
			return err
		}
		if _, err := platform.peak(ctx); err != nil {
			return err
		}
		without, err := b.quietOnce(ctx, quiet, fmt.Sprintf("without-%d", round))
		if err != nil {
			return err
		}
		mibWithout, err := platform.peak(ctx)
		if err != nil {
			return err
		}
		var with []float64
		err = flooded(round, func() (err error) {
			with, err = b.quietOnce(ctx, quiet, fmt.Sprintf("with-%d", round))
			return err
		})
		if err != nil {
			return err
		}
		mibWith, err := platform.peak(ctx)
		if err != nil {
			return err
		}
		p.stock, p.berth = append(p.stock, without...), append(p.berth, with...)
		ratios = append(ratios, report.Percentile(with, 99)/report.Percentile(without, 99))
		memory.stock, memory.berth = append(memory.stock, mibWithout), append(memory.berth, mibWith)
		b.say("noisy_p99_ratio: %.4g ms and %.0f MiB with noise, %.4g ms and %.0f MiB without",
			report.Percentile(with, 99), mibWith, report.Percentile(without, 99), mibWithout)
	}
	if b.profiles != "" {
		err := b.profileOnce(ctx, "noisy", platform, noisyRounds, func(round int) (value float64, err error) {
			return 0, flooded(round, func() error {
				_, err := b.quietOnce(ctx, quiet, "profile")
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	var answers side.FloodAnswers
	if err := flood.call(ctx, "Answers", struct{}{}, &answers); err != nil {
		return err
	}
	with, without := report.Percentile(p.berth, 99), report.Percentile(p.stock, 99)
	b.report.Add("noisy_p99_ratio", "times", report.Percentile(ratios, 50), 1, report.AtMost(1.5))
	b.report.Add("noisy_p99_ms", "ms", with, without, report.Target{})
	b.report.Add("noisy_p50_ms", "ms", report.Percentile(p.berth, 50), report.Percentile(p.stock, 50), report.Target{})
	mibWith, mibWithout := slices.Max(memory.berth), slices.Min(memory.stock)
	b.report.Add("noisy_memory_mib", "MiB", mibWith, mibWithout, report.Target{})
	b.report.Add("noisy_memory_growth_mib", "MiB", mibWith-mibWithout, 0, report.AtMost(floodMiB()))
	b.report.Note("noisy_memory_…: the largest resident set of the process that serves all spaces; its target is what the limits of the noisy space allow")
	b.report.Note("noisy_…: of %d quiet spaces with (berth) and without (stock) a noisy one, of whose requests %d were answered and %d refused",
		b.quietSpaces, answers.Answered, answers.Refused)
	return nil
}

// floodMiB is how much memory a tenant with one space may hold by its limits, in MiB.
func floodMiB() float64 {
	sum := int64(0)
	for _, q := range []bounds.Quantity{bounds.MemoryBytes, bounds.WatchBytes, bounds.CachedBytes} {
		sum += q.Bound().Default
	}
	return float64(sum) / (1 << 20)
}

// quietOnce has each client do light work for a while, and returns the milliseconds of each request.
func (b *bench) quietOnce(ctx context.Context, clients []kubernetes.Interface, name string) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, b.noisyFor+burstTime)
	defer cancel()
	steps := int(b.noisyFor / quietEvery)
	times := make([]float64, len(clients)*steps)
	errs := make([]error, len(times))
	var wg sync.WaitGroup
	for c, client := range clients {
		wg.Go(func() {
			// Clients do not ask in step.
			first := time.Now().Add(quietEvery * time.Duration(c) / time.Duration(len(clients)))
			for step := range steps {
				due := first.Add(quietEvery * time.Duration(step))
				select {
				case <-time.After(time.Until(due)):
				case <-ctx.Done():
					return
				}
				wg.Go(func() {
					i := c*steps + step
					errs[i] = lightWork(ctx, client, name, step)
					times[i] = float64(time.Since(due).Microseconds()) / 1000
				})
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errors.Join(errs...), ctx.Err()); err != nil {
		return nil, fmt.Errorf("work in a quiet space: %w", err)
	}
	return times, nil
}

// lightWork is a request as users make them now and then: writes of something new, reads and lists of what there is.
func lightWork(ctx context.Context, client kubernetes.Interface, name string, step int) (err error) {
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	switch step % 4 {
	case 0:
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, step)}}, metav1.CreateOptions{})
	case 1:
		_, err = maps.Get(ctx, firstWrite, metav1.GetOptions{})
	case 2:
		_, err = maps.List(ctx, metav1.ListOptions{})
	default:
		_, err = client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	}
	return err
}
