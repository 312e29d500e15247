// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/progress"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

func (c *commands) newCordon() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cordon NAME...",
		Short: "Let shards get no more spaces",
		Long: `Cordon shards: they get no more spaces, and keep those that they have. You can still
move a space there with 'berth space move --to'.`,
		Example: "  berth shard cordon berth-2",
	}
	return c.change(cmd, "cordoned", `{"spec":{"unschedulable":true}}`, func(s *v1alpha1.ShardSpec) bool { return ptr.Deref(s.Unschedulable, false) })
}

func (c *commands) newUncordon() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "uncordon NAME...",
		Short:   "Let cordoned or drained shards get spaces again",
		Long:    "Uncordon shards: they get spaces again. It also ends a drain. Moves that have begun continue.",
		Example: "  berth shard uncordon berth-2",
	}
	return c.change(cmd, "uncordoned", `{"spec":{"unschedulable":null,"drain":null}}`, func(s *v1alpha1.ShardSpec) bool {
		return !ptr.Deref(s.Unschedulable, false) && !ptr.Deref(s.Drain, false)
	})
}

// change makes a command patch shards, except those that are as they are to be.
func (c *commands) change(cmd *cobra.Command, done, patch string, is func(*v1alpha1.ShardSpec) bool) *cobra.Command {
	var change flags.Change
	cmd.Args, cmd.ValidArgsFunction = cobra.MinimumNArgs(1), c.host.Names("shards", 0)
	cmd.RunE = c.host.Run(func(cmd *cobra.Command, args []string, host *hostapi.Client) error {
		if err := change.Check(); err != nil {
			return err
		}
		for _, name := range args {
			shard, err := c.find(cmd.Context(), host, name)
			if err != nil {
				return err
			}
			if is(&shard.Spec) {
				change.Line(cmd, progress.Name(shard), "already "+done)
				continue
			}
			if change.Sends() {
				if err := change.Of(host).Patch(cmd.Context(), shard, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
					return err
				}
			}
			change.Line(cmd, progress.Name(shard), done)
		}
		return nil
	})
	change.AddTo(cmd, false)
	return cmd
}
