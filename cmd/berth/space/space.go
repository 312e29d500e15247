// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package space has the commands for spaces: flags and printing. They use the API of the host with the rights of the caller, and
// the control socket of a Berth on this machine for what the API of the host doesn't offer.
package space

import (
	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/flags"
)

// New returns the command for spaces, with those below it.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "space",
		Short: "Create, use, and delete spaces",
		Long: `Create, use, and delete spaces.

The commands use the API of the host cluster with your kubeconfig and your rights, as
kubectl does. They work from any machine, and the host's audit log contains what they
do. If you have no kubeconfig, they use the host of a 'berth up' on this machine.

'sleep', 'snapshot', and 'restore' need the control socket of Berth: run them where
Berth runs, on the machine or in the pod. 'wake' uses the socket if it is there.`,
	}
	host := &flags.Host{}
	host.AddTo(cmd)
	cmd.AddCommand(newCreate(host), newGet(host), newDescribe(host), newConnect(host), newMove(host), newKeys(host), newDelete(host))
	cmd.AddCommand(sleepCommand(host, "berth space sleep"), wakeCommand(host, "berth space wake"))
	cmd.AddCommand(snapshotCommand(host, "snapshot", "berth space snapshot"), restoreCommand(host, "berth space restore"))
	return cmd
}

// Aliases returns the commands that were there before those of [New], and do the same under shorter names.
func Aliases() []*cobra.Command {
	var all []*cobra.Command
	for _, make := range []func(*flags.Host) *cobra.Command{
		func(h *flags.Host) *cobra.Command { return sleepCommand(h, "berth sleep") },
		func(h *flags.Host) *cobra.Command { return wakeCommand(h, "berth wake") },
		snapshotsCommand,
	} {
		host := &flags.Host{}
		cmd := make(host)
		host.AddTo(cmd)
		all = append(all, cmd)
	}
	return all
}
