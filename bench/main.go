// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures Berth beside stock Kubernetes in the same run and prints a table.
//
// Each side is measured in a process of its own, which is this binary started again, so that neither disturbs the other's
// figures; the clients are in the first process. With BENCH_JSON=file the figures are also written there. It needs Linux, and for
// stores in database servers the packages postgresql and mariadb-server of Debian. With -soak it looks for leaks instead, and with -space it measures a Berth that is installed in a real cluster. How and why each figure is measured is in docs/contributing/benchmarks.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/procfs"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/berth-dev/berth/bench/internal/probe"
	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
	"github.com/berth-dev/berth/internal/testservers"
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
	if testservers.Serve() {
		return nil
	}
	if name := os.Getenv(childVariable); name != "" {
		return side.Run(ctx, name, openFlood)
	}
	ctrllog.SetLogger(logr.Discard()) // it complains otherwise
	b := &bench{started: time.Now()}
	if err := b.settings.flags().Parse(os.Args[1:]); err != nil {
		return err
	}
	if err := b.check(); err != nil {
		return err
	}
	if b.apart {
		if err := b.leaveToHost(ctx); err != nil {
			return err
		}
	}
	if b.soak {
		return b.runSoak(ctx)
	}
	b.noteLoad("at the start")
	err := b.measure(ctx)
	b.noteLoad("at the end")
	// What was measured until something failed is shown too.
	return errors.Join(err, b.report.WriteTable(os.Stdout), keep(&b.report))
}

// bench is one run.
type bench struct {
	settings
	report  report.Report
	started time.Time

	// What a group found of stock servers, for those after it.
	peerAwake  probe.Footprint
	peerStarts []float64 // seconds
}

// say tells whoever waits what is being done.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%4.0fs] %s\n", time.Since(b.started).Seconds(), fmt.Sprintf(format, args...))
}

// noteLoad notes what else the machine does: figures of a busy machine say little.
func (b *bench) noteLoad(when string) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return
	}
	if load, err := fs.LoadAvg(); err == nil {
		b.report.Note("load average of the machine %s: %.1f", when, load.Load1)
	}
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
