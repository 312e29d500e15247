// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// Wait has the flags of commands that can wait until what they have started is done.
type Wait struct {
	Wait    bool
	Timeout time.Duration
}

// AddTo declares the flags. What is waited for completes "wait until".
func (w *Wait) AddTo(cmd *cobra.Command, usual bool, what string) {
	cmd.Flags().BoolVar(&w.Wait, "wait", usual, "wait until "+what+", with progress on standard error")
	cmd.Flags().DurationVar(&w.Timeout, "timeout", 5*time.Minute, "how long to wait for all together")
}

// Context returns a context that ends after the timeout. Its cause says that what has been started goes on.
func (w *Wait) Context(parent context.Context, goesOn string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(parent, w.Timeout, fmt.Errorf("not done after %s; %s", w.Timeout, goesOn))
}
