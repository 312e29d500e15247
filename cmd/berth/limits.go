// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-dev/berth/bounds"
)

// limitOptions is the flag that says what spaces may use: each value is of all spaces, or of the one that is named before
// a colon.
type limitOptions struct{ limits []string }

func (o *limitOptions) add(cmd *cobra.Command) {
	var names []string
	for _, b := range bounds.Table() {
		if b.Scope == bounds.PerSpace {
			names = append(names, b.Name)
		}
	}
	cmd.Flags().StringSliceVar(&o.limits, "limit", nil,
		"limits of spaces, as NAME=VALUE for all or SPACE:NAME=VALUE for one; values may be like 512Mi; names are "+strings.Join(names, ", "))
	_ = cmd.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
}

// spaceLimits are by space, and under the empty name what is said of all.
type spaceLimits map[string]bounds.Limits

// of a space: what differs from the defaults.
func (l spaceLimits) of(space string) bounds.Limits {
	limits := bounds.Limits{}
	maps.Copy(limits, l[""])
	maps.Copy(limits, l[space])
	return limits
}

// options checks what was said.
func (o *limitOptions) options() (spaceLimits, error) {
	said := spaceLimits{}
	for _, value := range o.limits {
		space, limit, err := ofSpace("--limit", value)
		if err != nil {
			return nil, err
		}
		name, number, _ := strings.Cut(limit, "=")
		quantity, ok := bounds.ByName(name)
		if !ok || quantity.Bound().Scope != bounds.PerSpace {
			return nil, fmt.Errorf("--limit: %q names no limit of a space: see docs/limits.md", name)
		}
		parsed, err := resource.ParseQuantity(number)
		if err != nil {
			return nil, fmt.Errorf("--limit: %s: %q is no number: want one like 1000 or 512Mi", name, number)
		}
		n, whole := parsed.AsInt64()
		if !whole || n < 1 || n == math.MaxInt64 {
			return nil, fmt.Errorf("--limit: %s: %q is not a whole number of %s above zero", name, number, quantity.Bound().Unit)
		}
		if said[space] == nil {
			said[space] = bounds.Limits{}
		}
		said[space][quantity] = n
	}
	return said, nil
}

// args are the flags that say the same to another process.
func (o *limitOptions) args() []string {
	var args []string
	for _, limit := range o.limits {
		args = append(args, "--limit", limit)
	}
	return args
}
