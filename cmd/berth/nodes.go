// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// nodeOptions are the flags that say on which of the host's nodes spaces' pods
// run: each value is of all spaces, or of the one that is named before a colon.
type nodeOptions struct{ selectors, labels []string }

func (o *nodeOptions) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&o.selectors, "node-selector", nil,
		"labels of the nodes that spaces' pods run on, as KEY=VALUE for all or SPACE:KEY=VALUE for one, which counts more")
	cmd.Flags().StringSliceVar(&o.labels, "node-labels", nil,
		"keys of nodes' labels that tenants may select nodes by, as KEY for all or SPACE:KEY for one; node selectors and node affinity are refused otherwise")
	for _, flag := range []string{"node-selector", "node-labels"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// placements are by space, and under the empty name what is said of all.
type placements map[string]translate.Placement

// options checks what was said, and joins what is synced of nodes to it.
func (o *nodeOptions) options(synced resources.SyncOptions) (placements, error) {
	said := placements{"": {ByName: synced.On(resources.DaemonSets)}}
	for _, value := range o.selectors {
		space, label, err := ofSpace("--node-selector", value)
		if err != nil {
			return nil, err
		}
		key, wanted, ok := strings.Cut(label, "=")
		if !ok {
			return nil, fmt.Errorf("--node-selector: %q names no label: want KEY=VALUE or SPACE:KEY=VALUE", value)
		}
		if problems := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(wanted)); len(problems) > 0 {
			return nil, fmt.Errorf("--node-selector: %q is no label: %s", label, problems[0])
		}
		p := said[space]
		if p.Selector == nil {
			p.Selector = map[string]string{}
		}
		if before, ok := p.Selector[key]; ok && before != wanted {
			return nil, fmt.Errorf("--node-selector: %s is to be %q and %q: no node has both", key, before, wanted)
		}
		p.Selector[key] = wanted
		said[space] = p
	}
	for _, value := range o.labels {
		space, key, err := ofSpace("--node-labels", value)
		if err != nil {
			return nil, err
		}
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return nil, fmt.Errorf("--node-labels: %q is no key of a label: %s", key, problems[0])
		}
		if key == corev1.LabelHostname {
			return nil, fmt.Errorf("--node-labels: %s would tell tenants the names of nodes; use a label that several nodes share", key)
		}
		p := said[space]
		p.Labels = append(p.Labels, key)
		said[space] = p
	}
	return said, nil
}

// of is what is said of a space and of all together.
func (p placements) of(space string) translate.Placement {
	all, own := p[""], p[space]
	selector := map[string]string{}
	maps.Copy(selector, all.Selector)
	maps.Copy(selector, own.Selector)
	keys := slices.Concat(all.Labels, own.Labels)
	slices.Sort(keys)
	return translate.Placement{Selector: selector, Labels: slices.Compact(keys), ByName: all.ByName}
}

// keys are those of all labels of nodes that are spoken of.
func (p placements) keys() []string {
	keys := map[string]struct{}{}
	for _, place := range p {
		for key := range place.Selector {
			keys[key] = struct{}{}
		}
		for _, key := range place.Labels {
			keys[key] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// args are the flags again, for another process.
func (o *nodeOptions) args() (args []string) {
	for _, s := range o.selectors {
		args = append(args, "--node-selector", s)
	}
	for _, l := range o.labels {
		args = append(args, "--node-labels", l)
	}
	return args
}

// ofSpace cuts off the name of a space before a colon. Neither labels nor their
// keys and values hold one.
func ofSpace(flag, value string) (space, rest string, err error) {
	before, after, ok := strings.Cut(value, ":")
	if !ok {
		return "", value, nil
	}
	if err := isolation.CheckSpaceName(before); err != nil {
		return "", "", fmt.Errorf("%s: %w", flag, err)
	}
	return before, after, nil
}
