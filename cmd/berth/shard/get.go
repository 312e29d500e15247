// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/listing"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

func (c *commands) newGet() *cobra.Command {
	var get flags.Get
	cmd := &cobra.Command{
		Use:     "get [NAME...]",
		Aliases: []string{"list", "ls"},
		Short:   "List shards with their spaces and memory",
		Long: `List shards, or those that you name. The columns are those of 'kubectl get shards':
  READY          True if the shard serves requests.
  SPACES         How many spaces the shard has.
  AWAKE          How many of these don't sleep.
  MEMORY         How much memory the process of the shard takes.
  UNSCHEDULABLE  true if the shard is cordoned or drained: it gets no more spaces.
With -o wide, there are also columns for the memory limit, the versions, the address,
and why the shard isn't ready.

'berth space list -o wide' shows which shard has a space.`,
		Example: `  berth shard list
  berth shard list -o wide
  berth shard get berth-0 -o yaml
  berth shard list -w`,
		ValidArgsFunction: c.host.Names("shards", 0),
		RunE: c.host.Run(func(cmd *cobra.Command, args []string, host *hostapi.Client) error {
			query := listing.Query{Resource: "shards", Namespace: c.namespace, Names: args}
			for _, name := range args {
				one, err := c.find(cmd.Context(), host, name)
				if err != nil {
					return err
				}
				if query.Namespace != "" && query.Namespace != one.Namespace {
					return errors.New("the shards are in several namespaces; set --namespace, or name those of one")
				}
				query.Namespace = one.Namespace
			}
			return get.Run(cmd, host, query, "")
		}),
	}
	get.AddTo(cmd)
	return cmd
}
