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

// actTimeout bounds what a command waits for by default.
const actTimeout = time.Minute

func newSleep() *cobra.Command {
	return newAct("sleep", "asleep", "Put spaces of a running berth to sleep", `Put spaces to sleep, without waiting until they are idle: their API servers and
controllers end, requests under way too, watches among them. Their pods run on.

A space sleeps as soon as its syncer has nothing under way and nothing was written
to it for a second, which is waited for ten seconds at most; until then, or the
timeout, the command waits. A request, a change to its host
objects, and its own timers (a CronJob's next run, a token to renew) wake it.`)
}

func newWake() *cobra.Command {
	return newAct("wake", "awake", "Wake spaces of a running berth", `Wake spaces, and wait until they serve. One that failed is tried again at once.`)
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
