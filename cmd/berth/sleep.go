// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/control"
)

// actTimeout is how long a command waits by default.
const actTimeout = time.Minute

func newSleep() *cobra.Command {
	return newAct("sleep", "asleep", "Put spaces to sleep", `Put spaces to sleep, even if they are in use. Berth stops their API servers and
controllers, and closes their open requests. Their pods continue to run. A request, a
change to the space's host objects, or a timer of the space (such as the next run of a
CronJob) wakes it again.

The command waits until the syncer has finished its current work and nothing has been
written to the space for one second. After ten seconds, writes don't delay it anymore.

The command needs a running Berth.`)
}

func newWake() *cobra.Command {
	return newAct("wake", "awake", "Wake spaces", `Wake spaces, and wait until they serve requests. A space that failed to start is
started again at once.

The command needs a running Berth.`)
}

func newAct(verb, done, short, long string) *cobra.Command {
	var dir string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:               verb + " SPACE...",
		Short:             short,
		Long:              long,
		Example:           "  berth " + verb + " demo",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeSpaces(&dir),
		RunE: func(cmd *cobra.Command, args []string) error {
			client := control.NewClient(dir)
			for _, name := range args {
				path := fmt.Sprintf("%s/%s?timeout=%s", spacePath(name), verb, timeout)
				if err := client.Do(cmd.Context(), http.MethodPost, path, nil); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "space/%s %s\n", name, done)
			}
			return nil
		},
	}
	addDataDir(cmd, &dir)
	cmd.Flags().DurationVar(&timeout, "timeout", actTimeout, "how long to wait for each space")
	return cmd
}
