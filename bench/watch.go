// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/bench/internal/report"
)

const (
	// watchWriters share the rate of writes. Each waits for its answers: there are enough that none falls behind.
	watchWriters = 20
	// eventTime is how long the last events may take.
	eventTime = 30 * time.Second
)

// measureWatch measures the time from asking for a write until each of some watches has shown it, at a steady rate of writes.
func measureWatch(ctx context.Context, b *bench, s *sides) error {
	berth, stock, err := s.both(ctx, "bench-watch")
	if err != nil {
		return err
	}
	var medians pair
	side := func(p *plane, median *[]float64) func(int) (float64, error) {
		return func(repeat int) (float64, error) {
			seconds, err := b.watchLatencies(ctx, p, repeat)
			*median = append(*median, report.Percentile(seconds, 50))
			return report.Percentile(seconds, 99), err
		}
	}
	p, err := b.inTurn(ctx, "watch_p99_s", b.repeats, berth, side(berth, &medians.berth), side(stock, &medians.stock))
	if err != nil {
		return err
	}
	b.add("watch_p99_s", "s", p, report.AtMostShare(1))
	b.add("watch_p50_s", "s", medians, report.AtMostShare(1))
	return nil
}

// watchLatencies writes at the rate for a while and returns the seconds that each event took on each watch.
func (b *bench) watchLatencies(ctx context.Context, p *plane, repeat int) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, b.watchFor+eventTime)
	defer cancel()
	clients, disconnect, err := p.clients(watchWriters + b.watchers)
	if err != nil {
		return nil, err
	}
	defer disconnect()
	l := &latencies{asked: map[string]time.Time{}}
	writes := int(b.watchFor.Seconds() * float64(b.rate))
	var watching sync.WaitGroup
	for _, client := range clients[watchWriters:] {
		w, err := watchConfigMaps(ctx, client)
		if err != nil {
			return nil, err
		}
		watching.Go(func() {
			defer w.Stop()
			l.collect(w, writes)
		})
	}
	err = b.writeSteadily(ctx, clients[:watchWriters], writes, func(i int) string {
		name := fmt.Sprintf("r-%d-%d", repeat, i)
		l.ask(name)
		return name
	})
	if err != nil {
		cancel()
	}
	watching.Wait()
	if err != nil {
		return nil, err
	}
	if want := writes * b.watchers; len(l.seconds) < want {
		return nil, fmt.Errorf("%d of %d events came from %s within %s", len(l.seconds), want, p.name, eventTime)
	}
	return l.seconds, nil
}

// writeSteadily creates objects at the rate, each when it is due.
func (b *bench) writeSteadily(ctx context.Context, clients []kubernetes.Interface, writes int, name func(i int) string) error {
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	begin := time.Now()
	for w, client := range clients {
		wg.Go(func() {
			for i := w; i < writes && errs[w] == nil; i += len(clients) {
				due := time.Duration(float64(i) / float64(b.rate) * float64(time.Second))
				select {
				case <-time.After(time.Until(begin.Add(due))):
				case <-ctx.Done():
				}
				errs[w] = createConfigMap(ctx, client, name(i))
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("write while watched: %w", err)
		}
	}
	return nil
}

// watchConfigMaps watches from now on.
func watchConfigMaps(ctx context.Context, client kubernetes.Interface) (watch.Interface, error) {
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	now, err := maps.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("list before the watch: %w", err)
	}
	w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: now.ResourceVersion})
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return w, nil
}

// latencies are the seconds from asking for each write until a watch has shown it.
type latencies struct {
	mu      sync.Mutex
	asked   map[string]time.Time
	seconds []float64
}

func (l *latencies) ask(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[name] = time.Now()
}

// collect takes the times of n events, or of those that come until the watch ends.
func (l *latencies) collect(w watch.Interface, n int) {
	for event := range w.ResultChan() {
		now := time.Now()
		cm, ok := event.Object.(*corev1.ConfigMap)
		if !ok || event.Type != watch.Added {
			continue
		}
		l.mu.Lock()
		if asked, ours := l.asked[cm.Name]; ours {
			l.seconds = append(l.seconds, now.Sub(asked).Seconds())
			n--
		}
		l.mu.Unlock()
		if n == 0 {
			return
		}
	}
}
