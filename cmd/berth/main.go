// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command berth gives every tenant of one Kubernetes cluster a cluster of its
// own. See `berth help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/berth-dev/berth/client/connection"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	// Nobody reads memory profiles here, and the records of allocations grow with each space that was ever awake.
	runtime.MemProfileRate = 0
	root := newRoot(os.Args[0])
	err := root.ExecuteContext(ctx)
	if exit, ok := errors.AsType[*connection.ExitError](err); ok {
		os.Exit(exit.Code) // the command that was run has printed why
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", root.DisplayName(), err)
		os.Exit(1)
	}
}
