// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/bench/internal/probe"
	"github.com/berth-dev/berth/bench/internal/report"
)

const (
	stockTask = "a stock API server"
	berthTask = "a space"

	// readyTime is how long a control plane may take until it serves.
	readyTime = 2 * time.Minute
	// readyPoll is how often it is asked. It bounds the error of the time measured.
	readyPoll = 5 * time.Millisecond
)

// controlPlane is a running control plane of either side.
type controlPlane struct {
	client *rest.Config
	stop   func(context.Context) error
}

// starter starts a control plane whose state is in dir. Readiness is waited for by the caller, with the client.
type starter func(ctx context.Context, dir string) (*controlPlane, error)

// costs is what a child reports of its side.
type costs struct {
	FirstCreate    float64   // seconds
	FurtherCreates []float64 // seconds each
	First          probe.Footprint
	Further        probe.Footprint // each
}

// compareControlPlanes adds what the first and each further control plane cost to r.
//
// The first is the whole process with one control plane in it; a further one is the slope over s.Further of them.
func compareControlPlanes(ctx context.Context, s settings, r *report.Report) error {
	var stock, berth costs
	if err := inChild(ctx, stockTask, s, &stock); err != nil {
		return err
	}
	if err := inChild(ctx, berthTask, s, &berth); err != nil {
		return err
	}
	r.Add("create_first_s", "s", berth.FirstCreate, stock.FirstCreate)
	r.Add("create_s", "s", report.Percentile(berth.FurtherCreates, 50), report.Percentile(stock.FurtherCreates, 50))
	r.Add("rss_first_mib", "MiB", berth.First.RSSMiB, stock.First.RSSMiB)
	r.Add("rss_further_mib", "MiB", berth.Further.RSSMiB, stock.Further.RSSMiB)
	r.Add("goroutines_first", "goroutines", berth.First.Goroutines, stock.First.Goroutines)
	r.Add("goroutines_further", "goroutines", berth.Further.Goroutines, stock.Further.Goroutines)
	r.Add("idle_cpu_cores_first", "cores", berth.First.CPUCores, stock.First.CPUCores)
	r.Add("idle_cpu_cores_further", "cores", berth.Further.CPUCores, stock.Further.CPUCores)
	return nil
}

// measureControlPlanes starts control planes in this process, one after the other, and measures it at rest after the first
// and after the last.
func measureControlPlanes(ctx context.Context, s settings, dir string, start starter) (_ *costs, err error) {
	var running []*controlPlane
	defer func() {
		// Not ctx: what was started is stopped also when the run was interrupted.
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), childStopTime)
		defer cancel()
		for _, p := range running {
			err = errors.Join(err, p.stop(stopping))
		}
	}()
	startNext := func() (float64, error) {
		begin := time.Now()
		place := filepath.Join(dir, fmt.Sprint(len(running)))
		if err := os.Mkdir(place, 0o700); err != nil {
			return 0, fmt.Errorf("make a place for data: %w", err)
		}
		p, err := start(ctx, place)
		if err != nil {
			return 0, err
		}
		running = append(running, p)
		if err := firstWrite(ctx, p.client); err != nil {
			return 0, err
		}
		return time.Since(begin).Seconds(), nil
	}

	var c costs
	if c.FirstCreate, err = startNext(); err != nil {
		return nil, err
	}
	if c.First, err = probe.Rest(ctx, s.Timing); err != nil {
		return nil, err
	}
	for range s.Further {
		seconds, err := startNext()
		if err != nil {
			return nil, err
		}
		c.FurtherCreates = append(c.FurtherCreates, seconds)
	}
	all, err := probe.Rest(ctx, s.Timing)
	if err != nil {
		return nil, err
	}
	c.Further = all.Minus(c.First, s.Further)
	return &c, nil
}

// firstWrite waits until the control plane says it is ready and a client has written to it.
func firstWrite(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first-write"}}
	var last error
	err = wait.PollUntilContextTimeout(ctx, readyPoll, readyTime, true, func(ctx context.Context) (bool, error) {
		if last = client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); last != nil {
			return false, nil
		}
		_, last = client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, cm, metav1.CreateOptions{})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the first write: %w", errors.Join(err, last))
	}
	return nil
}
