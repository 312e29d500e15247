// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
)

// hostProcessor is the one that the host has for itself with -apart.
const hostProcessor = "0"

// leaveToHost has this process, and so the sides that it starts, run on all processors but the host's.
func (b *bench) leaveToHost(ctx context.Context) error {
	last := runtime.NumCPU() - 1
	if last < 1 {
		return errors.New("-apart needs at least two processors")
	}
	others := fmt.Sprintf("1-%d", last)
	out, err := exec.CommandContext(ctx, "taskset", "-acp", others, strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		return fmt.Errorf("-apart: run on processors %s: %w: %s", others, err, out)
	}
	b.report.Note("the host has processor %s for itself, Berth and the clients have %s", hostProcessor, others)
	return nil
}
