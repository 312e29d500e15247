// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berth-dev/berth/kine"
)

// BenchmarkIdleStores is what 50 stores with 100 objects and 60 watches each cost while nothing happens in them: memory
// of the process with SQLite's, goroutines, and CPU.
func BenchmarkIdleStores(b *testing.B) {
	const stores, watches, objects = 50, 60, 100
	for range b.N {
		memory, goroutines := rss(b), runtime.NumGoroutine()
		open := make([]*kine.Store, stores)
		for i := range open {
			open[i] = openAt(b, filepath.Join(b.TempDir(), fmt.Sprint(i), "state.db"))
			var events clientv3.WatchChan
			for j := range watches {
				events = open[i].Client().Watch(b.Context(), fmt.Sprintf("/registry/%d/", j), clientv3.WithPrefix())
			}
			for j := range objects {
				create(b, open[i], fmt.Sprintf("/registry/%d/%d", watches-1, j), string(bytes.Repeat([]byte("x"), 1500)))
			}
			for seen := 0; seen < objects; {
				seen += len((<-events).Events)
			}
		}
		settle(open)
		b.ReportMetric(float64(rss(b)-memory)/stores/(1<<20), "MiB/store")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/stores, "goroutines/store")
		const while = 3 * time.Second
		before := cpu(b)
		<-time.After(while)
		b.ReportMetric(1000*(cpu(b)-before).Seconds()/while.Seconds()/stores, "mCPU/store")
		for _, s := range open {
			closeStore(b, s)
		}
	}
}

func settle(stores []*kine.Store) {
	for _, s := range stores {
		s.Release()
	}
	debug.FreeOSMemory()
}

func rss(b *testing.B) int {
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("no figures of the process on this system")
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	var kib int
	if _, err := fmt.Sscan(after, &kib); err != nil {
		b.Fatal(err)
	}
	return kib << 10
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
