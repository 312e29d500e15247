// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/bench/internal/probe"
)

// childVariable names the task of a child process, one of the keys of tasks. It is unset in the parent.
const childVariable = "BERTH_BENCH_CHILD"

// childStopTime is how long a child may take to end once it is told to.
const childStopTime = 30 * time.Second

// settings are the command's flags. A child is given the same.
type settings struct {
	Further int
	Pods    int
	Host    string // path of a kubeconfig
	probe.Timing
}

func (s settings) args() []string {
	return []string{
		fmt.Sprintf("-further=%d", s.Further),
		fmt.Sprintf("-pods=%d", s.Pods),
		fmt.Sprintf("-host-kubeconfig=%s", s.Host),
		fmt.Sprintf("-settle=%s", s.Settle),
		fmt.Sprintf("-watch=%s", s.Watch),
	}
}

// inChild runs a task in a fresh process, in an empty working directory, and decodes what it printed into result.
func inChild(ctx context.Context, task string, s settings, result any) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	// Made here and not by the child, because upstream ends the process when a server is stopped in mid-start.
	dir, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		return fmt.Errorf("make a place for data: %w", err)
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, self, s.args()...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), childVariable+"="+task)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = childStopTime
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return fmt.Errorf("measure %s: %w", task, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("measure %s: %w: %s", task, err, bytes.TrimSpace(complaint.Bytes()))
	}
	if err := json.Unmarshal(out, result); err != nil {
		return fmt.Errorf("read figures of %s: %w", task, err)
	}
	return nil
}

// runChild runs a task in this process and prints its result for the parent. State goes below the working directory.
func runChild(ctx context.Context, task string, s settings) error {
	// What the servers log would drown the table; a failure reaches the parent as an error.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the place for data: %w", err)
	}
	if task == hostTask {
		return serveHost(ctx, dir, os.Stdout)
	}
	result, err := perform(ctx, task, s, dir)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func perform(ctx context.Context, task string, s settings, dir string) (any, error) {
	switch task {
	case stockTask:
		return measureControlPlanes(ctx, s, dir, startStock)
	case berthTask:
		return measureSpaces(ctx, s, dir)
	case podsTask:
		return measurePods(ctx, s, dir)
	default:
		return nil, fmt.Errorf("unknown task %q", task)
	}
}
