// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/bench/internal/report"
)

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
	for _, p := range []*plane{stock, berth} {
		b.say("list: creating %d pods in %s", b.list, p.child.side)
		if err := b.fill(ctx, p); err != nil {
			return err
		}
	}
	for _, m := range []struct{ name, mediaType string }{
		{"list_5000_s", runtime.ContentTypeJSON},
		{"list_5000_protobuf_s", runtime.ContentTypeProtobuf},
	} {
		side := func(p *plane) func(int) (float64, error) {
			return func(int) (float64, error) { return b.timeLists(ctx, p, m.mediaType) }
		}
		p, err := b.inTurn(ctx, m.name, b.repeats, berth, side(berth), side(stock))
		if err != nil {
			return err
		}
		b.add(m.name, "s", p, report.AtMostShare(1))
	}
	if b.list != 5000 {
		b.report.Note("list_5000_s, list_5000_protobuf_s: of %d pods", b.list)
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
