// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/tenancy"
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

// all are these and those of the host.
func (o *networkOptions) all(ctx context.Context, config *rest.Config, logger logr.Logger) ([]netip.Prefix, error) {
	own, err := o.ranges()
	if err != nil {
		return nil, err
	}
	host, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	found, err := tenancy.HostRanges(ctx, host)
	if err != nil {
		logger.Error(err, "Of these addresses of the host, only the private ones are closed to spaces; name the others by --network-closed")
	}
	return tenancy.JoinRanges(slices.Concat(own, found)), nil
}

// args are the flags again, for another process.
func (o *networkOptions) args() (args []string) {
	for _, text := range o.closed {
		args = append(args, "--network-closed", text)
	}
	return args
}
