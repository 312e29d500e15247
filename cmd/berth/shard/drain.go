// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/progress"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

// countInterval is the time between two counts of the spaces of a shard, which read all spaces of the host.
const countInterval = time.Second

func (c *commands) newDrain() *cobra.Command {
	var change flags.Change
	var wait flags.Wait
	cmd := &cobra.Command{
		Use:   "drain NAME...",
		Short: "Move all spaces off shards",
		Long: `Drain shards: they get no more spaces, and their spaces move to the other shards, at most
two at a time. Requests to a space are held while the space moves. Pods of spaces aren't
restarted.

The command sets spec.drain and spec.unschedulable of the shards. The operator chooses
the other shards, and moves sleeping spaces first. 'berth shard uncordon' ends the drain.

The command exits with code 1 if spaces are left when --timeout expires; the drain
continues.`,
		Example: `  berth shard drain berth-2
  berth shard drain berth-2 --timeout 1h
  berth shard drain berth-2 --wait=false`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: c.host.Names("shards", 0),
		RunE: c.host.Run(func(cmd *cobra.Command, args []string, host *hostapi.Client) error {
			if err := change.Check(); err != nil {
				return err
			}
			var draining []*v1alpha1.Shard
			for _, name := range args {
				shard, err := c.find(cmd.Context(), host, name)
				if err != nil {
					return err
				}
				if change.Sends() && !ptr.Deref(shard.Spec.Drain, false) {
					if err := change.Of(host).Patch(cmd.Context(), shard, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":true,"drain":true}}`))); err != nil {
						return err
					}
				}
				draining = append(draining, shard)
			}
			ctx, cancel := wait.Context(cmd.Context(), "the drain continues, see 'berth shard list'")
			defer cancel()
			for _, shard := range draining {
				if !change.Dry() && !wait.Wait {
					fmt.Fprintf(cmd.OutOrStdout(), "%s is being drained\n", progress.Name(shard))
					continue
				}
				if !change.Dry() {
					if err := drained(ctx, cmd, host, shard); err != nil {
						return err
					}
				}
				change.Line(cmd, progress.Name(shard), "drained")
			}
			return nil
		}),
	}
	wait.AddTo(cmd, true, "no spaces are left on the shards")
	change.AddTo(cmd, false)
	return cmd
}

// drained waits until a shard has no spaces.
func drained(ctx context.Context, cmd *cobra.Command, host *hostapi.Client, shard *v1alpha1.Shard) error {
	var counted time.Time
	var left, moving, fixed int
	var ended error
	err := progress.Await(ctx, cmd.ErrOrStderr(), progress.Name(shard), func(ctx context.Context) (bool, string, error) {
		if err := host.Get(ctx, client.ObjectKeyFromObject(shard), shard); err != nil {
			return false, "", err
		}
		if !ptr.Deref(shard.Spec.Drain, false) {
			ended = fmt.Errorf("the drain of %s was ended by somebody else; start it again, or leave the shard as it is", progress.Name(shard))
			return true, "", nil
		}
		if time.Since(counted) >= countInterval {
			var err error
			if left, moving, fixed, err = count(ctx, host, shard); err != nil {
				return false, "", err
			}
			counted = time.Now()
		}
		if left > 0 && left == fixed {
			ended = fmt.Errorf("%d dedicated spaces run on the machine of %s, and stay there; set spec.isolation of their Space objects to Shared, or spec.dedicateAfterSeconds to 0 of those that have outgrown their share, and they move, too", fixed, progress.Name(shard))
			return true, "", nil
		}
		message := fmt.Sprintf("%d spaces left, %d moving", left, moving)
		if left == 1 {
			message = fmt.Sprintf("1 space left, %d moving", moving)
		}
		if ready := meta.FindStatusCondition(shard.Status.Conditions, v1alpha1.ConditionReady); left > 0 && (ready == nil || ready.Status != "True") {
			message += "; the shard isn't ready, and its spaces wait until it is"
		}
		return left == 0, message, nil
	})
	if err != nil {
		return err
	}
	return ended
}

// count counts the spaces of a shard, those of them that move, and those that can't, because they are dedicated and run on its machine.
func count(ctx context.Context, host client.Reader, shard *v1alpha1.Shard) (left, moving, fixed int, err error) {
	const page = 500
	var list v1alpha1.SpaceList
	for {
		if err := host.List(ctx, &list, client.Limit(page), client.Continue(list.Continue)); err != nil {
			return 0, 0, 0, err
		}
		for i := range list.Items {
			if one := &list.Items[i]; one.Status.Shard == shard.Name && one.Spec.PlatformName == shard.Spec.PlatformName {
				left++
				if one.Status.MovingTo != "" {
					moving++
				}
				if shard.Status.DedicatedMax == nil && (one.Spec.Isolation == v1alpha1.Dedicated || hasOutgrown(one)) {
					fixed++
				}
			}
		}
		if list.Continue == "" {
			return left, moving, fixed, nil
		}
	}
}

// hasOutgrown reports whether a space has a process of its own, and keeps it, because it has outgrown its share of the shared one.
func hasOutgrown(s *v1alpha1.Space) bool {
	within := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionWithinShare)
	return within != nil && within.Reason == v1alpha1.ReasonDedicated && ptr.Deref(s.Spec.DedicateAfterSeconds, 0) != 0
}
