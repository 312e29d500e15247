// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures Berth beside stock Kubernetes in the same run and prints a table.
//
// Each side is measured in a process of its own, which is this binary started again, so that neither disturbs the other's
// figures. With BENCH_JSON=file the figures are also written there. It needs Linux, and nothing else installed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/berth-dev/berth/bench/internal/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	s := settings{}
	flag.IntVar(&s.Further, "further", 4, "how many control planes to start after the first, in the same process")
	flag.IntVar(&s.Pods, "pods", 200, "how many pods to create each way, through a space and directly")
	flag.StringVar(&s.Host, "host-kubeconfig", "", "kubeconfig of the host cluster; an embedded one is started in a process of its own if empty")
	flag.DurationVar(&s.Settle, "settle", 20*time.Second, "how long to leave a process alone before measuring it at rest")
	flag.DurationVar(&s.Watch, "watch", 20*time.Second, "how long to average idle CPU over")
	flag.Parse()
	if s.Further < 1 {
		return fmt.Errorf("-further is %d: the slope needs at least 1", s.Further)
	}
	if s.Pods < 1 {
		return fmt.Errorf("-pods is %d: want at least 1", s.Pods)
	}
	if task := os.Getenv(childVariable); task != "" {
		return runChild(ctx, task, s)
	}
	var r report.Report
	err := withHost(ctx, s, func(s settings) error {
		if err := compareControlPlanes(ctx, s, &r); err != nil {
			return err
		}
		return comparePods(ctx, s, &r)
	})
	if err != nil {
		return err
	}
	if err := r.WriteTable(os.Stdout); err != nil {
		return fmt.Errorf("print table: %w", err)
	}
	return keep(&r)
}

// keep writes the figures to the file that BENCH_JSON names, if it does.
func keep(r *report.Report) error {
	name := os.Getenv("BENCH_JSON")
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	if err := errors.Join(r.WriteJSON(f), f.Close()); err != nil {
		return fmt.Errorf("write figures to %s: %w", name, err)
	}
	return nil
}
