// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/bench/internal/report"
)

// writeSize is how many bytes a written object's data has. With its metadata it is 1.5 KB in the store.
const writeSize = 1200

// measureWrites lets many clients create objects in one space, and in a stock API server on etcd, as fast as they can.
func measureWrites(ctx context.Context, b *bench, s *sides) error {
	berth, stock, err := s.both(ctx, "bench-writes")
	if err != nil {
		return err
	}
	var failed struct{ berth, stock int64 }
	side := func(p *plane, failed *int64) func(int) (float64, error) {
		return func(repeat int) (float64, error) {
			rate, errors, err := b.writeToAll(ctx, p, repeat)
			*failed += errors
			return rate, err
		}
	}
	p, err := b.inTurn(ctx, "writes_per_s", b.repeats, berth, side(berth, &failed.berth), side(stock, &failed.stock))
	if err != nil {
		return err
	}
	b.add("writes_per_s", "1/s", p, report.AtLeastShare(1))
	b.report.Add("write_errors", "errors", float64(failed.berth), float64(failed.stock), report.AtMost(0))
	return nil
}

// writeToAll lets the writers write for a while, each by a connection of its own, and returns the writes a second.
func (b *bench) writeToAll(ctx context.Context, p *plane, repeat int) (rate float64, errors int64, err error) {
	clients, disconnect, err := p.clients(b.writers)
	if err != nil {
		return 0, 0, err
	}
	defer disconnect()
	for _, client := range clients { // connect before the time runs
		if _, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
			return 0, 0, fmt.Errorf("connect a writer to %s: %w", p.name, err)
		}
	}
	var written, failed atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for w, client := range clients {
		wg.Go(func() {
			for i := 0; time.Since(begin) < b.writeFor && ctx.Err() == nil; i++ {
				if createConfigMap(ctx, client, fmt.Sprintf("w-%d-%d-%d", repeat, w, i)) != nil {
					failed.Add(1)
				} else {
					written.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return float64(written.Load()) / time.Since(begin).Seconds(), failed.Load(), ctx.Err()
}

func createConfigMap(ctx context.Context, client kubernetes.Interface, name string) error {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "bench"}},
		Data:       map[string]string{"data": strings.Repeat("0123456789", writeSize/10)},
	}
	_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, cm, metav1.CreateOptions{})
	return err
}
