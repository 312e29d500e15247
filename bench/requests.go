// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	p, failed, err := b.compareWrites(ctx, "writes_per_s", berth, stock)
	if err != nil {
		return err
	}
	b.add("writes_per_s", "1/s", p, report.AtLeastShare(1))
	b.report.Add("write_errors", "errors", float64(failed.berth), float64(failed.stock), report.AtMost(0))
	return nil
}

// failures are how many writes failed on either side.
type failures struct{ berth, stock int64 }

// compareWrites lets many clients write on both sides, in turn, and returns the writes a second.
func (b *bench) compareWrites(ctx context.Context, name string, berth, stock *plane) (p pair, failed failures, err error) {
	side := func(p *plane, failed *int64) func(int) (float64, error) {
		return func(repeat int) (float64, error) {
			rate, errors, err := b.writeToAll(ctx, p, repeat)
			*failed += errors
			return rate, err
		}
	}
	p, err = b.inTurn(ctx, name, b.repeats, berth, side(berth, &failed.berth), side(stock, &failed.stock))
	return p, failed, err
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

const (
	// listWriters fill the list.
	listWriters = 10
	// listsEach is how many lists a repeat takes.
	listsEach = 5
)

// measureList lists many pods whole, as both JSON and protobuf, until the last byte has come.
func measureList(ctx context.Context, b *bench, s *sides) error {
	berth, stock, err := s.both(ctx, "bench-list")
	if err != nil {
		return err
	}
	if err := b.fillBoth(ctx, berth, stock); err != nil {
		return err
	}
	for _, m := range []struct{ name, mediaType string }{
		{"list_5000_s", runtime.ContentTypeJSON},
		{"list_5000_protobuf_s", runtime.ContentTypeProtobuf},
	} {
		p, err := b.compareLists(ctx, m.name, m.mediaType, berth, stock)
		if err != nil {
			return err
		}
		b.add(m.name, "s", p, report.AtMostShare(1))
	}
	b.noteListed("list_5000_s, list_5000_protobuf_s")
	return nil
}

// compareLists lists the pods on both sides, in turn, and returns the seconds.
func (b *bench) compareLists(ctx context.Context, name, mediaType string, berth, stock *plane) (pair, error) {
	side := func(p *plane) func(int) (float64, error) {
		return func(int) (float64, error) { return b.timeLists(ctx, p, mediaType) }
	}
	return b.inTurn(ctx, name, b.repeats, berth, side(berth), side(stock))
}

// noteListed notes of how many pods lists are, if that isn't what their names say.
func (b *bench) noteListed(names string) {
	if b.list != 5000 {
		b.report.Note("%s: of %d pods", names, b.list)
	}
}

// fillBoth creates the pods that are listed.
func (b *bench) fillBoth(ctx context.Context, berth, stock *plane) error {
	for _, p := range []*plane{stock, berth} {
		b.say("list: creating %d pods in %s", b.list, p.child.side)
		if err := b.fill(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// fill creates the pods. They are gated, so that no scheduler and no node, which only one of the sides has, changes them.
func (b *bench) fill(ctx context.Context, p *plane) error {
	clients, disconnect, err := p.clients(listWriters)
	if err != nil {
		return err
	}
	defer disconnect()
	if err := p.allowPods(ctx, clients[0]); err != nil {
		return err
	}
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	for w, client := range clients {
		wg.Go(func() {
			for i := w; i < b.list && errs[w] == nil; i += len(clients) {
				pod := newPod(fmt.Sprintf("pod-%d", i))
				pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "bench.example/never"}}
				_, errs[w] = client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{})
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("create a pod to list: %w", err)
		}
	}
	return nil
}

// timeLists returns the median seconds of some lists, after one that doesn't count.
func (b *bench) timeLists(ctx context.Context, p *plane, mediaType string) (float64, error) {
	client, disconnect, err := p.client()
	if err != nil {
		return 0, err
	}
	defer disconnect()
	var seconds []float64
	for range listsEach + 1 {
		begin := time.Now()
		if err := readList(ctx, client, mediaType); err != nil {
			return 0, fmt.Errorf("list the pods of %s: %w", p.name, err)
		}
		seconds = append(seconds, time.Since(begin).Seconds())
	}
	return report.Percentile(seconds[1:], 50), nil
}

// readList reads the answer and doesn't decode it, which is the client's part.
func readList(ctx context.Context, client kubernetes.Interface, mediaType string) error {
	answer, err := client.CoreV1().RESTClient().Get().Namespace(metav1.NamespaceDefault).Resource("pods").
		SetHeader("Accept", mediaType).Stream(ctx)
	if err != nil {
		return err
	}
	defer answer.Close()
	_, err = io.Copy(io.Discard, answer)
	return err
}
