// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/berth-dev/berth/kine"
)

// BenchmarkCreate writes objects of 1.5 KB, the size of a small pod, as the API server does.
func BenchmarkCreate(b *testing.B) {
	for _, writers := range []int{1, 10, 50} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := openAt(b, filepath.Join(b.TempDir(), "state.db"))
			value := bytes.Repeat([]byte("x"), 1500)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range writers {
				wg.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						key := fmt.Sprintf("/registry/pods/default/web-%d", i)
						resp, err := s.Client().Kubernetes.OptimisticPut(b.Context(), key, value, 0, kubernetes.PutOptions{})
						if err != nil || !resp.Succeeded {
							b.Errorf("create %s: %+v, %v", key, resp, err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
		})
	}
}

// BenchmarkList reads a page of 500 of 2000 objects, as a client without a watch cache does.
func BenchmarkList(b *testing.B) {
	s := openAt(b, filepath.Join(b.TempDir(), "state.db"))
	var wg sync.WaitGroup
	for w := range 20 {
		wg.Go(func() {
			for i := range 100 {
				create(b, s, fmt.Sprintf("/registry/pods/default/web-%d-%d", w, i), string(bytes.Repeat([]byte("x"), 1500)))
			}
		})
	}
	wg.Wait()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Client().Kubernetes.List(b.Context(), "/registry/pods/", kubernetes.ListOptions{Limit: 500}); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkOpen is what a wake pays for the store, checks included, by size.
func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprintf("objects=%d", n), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "state.db")
			s := openAt(b, path)
			var wg sync.WaitGroup
			for w := range 20 {
				wg.Go(func() {
					for i := range n / 20 {
						create(b, s, fmt.Sprintf("/registry/pods/default/web-%d-%d", w, i), string(bytes.Repeat([]byte("x"), 1500)))
					}
				})
			}
			wg.Wait()
			closeStore(b, s)
			b.ResetTimer()
			for range b.N {
				s, err := kine.Open(b.Context(), kine.Options{Path: path})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				closeStore(b, s)
				b.StartTimer()
			}
		})
	}
}
