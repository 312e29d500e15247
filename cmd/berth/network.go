// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"
)

// networkOptions are the flags about what spaces' pods reach.
type networkOptions struct{ closed []string }

func (o *networkOptions) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&o.closed, "network-closed", nil,
		"address ranges, in CIDR form, that spaces' pods must not reach, beside private and special ones and those that the host says are its services', pods' and nodes'")
	_ = cmd.RegisterFlagCompletionFunc("network-closed", cobra.NoFileCompletions)
}

// ranges checks what was said.
func (o *networkOptions) ranges() (out []netip.Prefix, err error) {
	for _, text := range o.closed {
		prefix, err := netip.ParsePrefix(text)
		switch {
		case err != nil || prefix.Addr().Is4In6():
			return nil, fmt.Errorf("--network-closed: %q is no address range: want, for example, 203.0.113.0/24 or 2001:db8::/32", text)
		case prefix != prefix.Masked():
			return nil, fmt.Errorf("--network-closed: %s has bits beyond its length: want %s", text, prefix.Masked())
		case prefix.Bits() == 0:
			return nil, fmt.Errorf("--network-closed: %s is everything: want a part of it", text)
		}
		out = append(out, prefix)
	}
	return out, nil
}

// args are the flags again, for another process.
func (o *networkOptions) args() (args []string) {
	for _, text := range o.closed {
		args = append(args, "--network-closed", text)
	}
	return args
}
