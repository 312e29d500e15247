// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
)

// syncOptions are the flags that say what is synced with the host.
type syncOptions struct{ switches, annotations []string }

func (o *syncOptions) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&o.switches, "sync", nil,
		"what to sync with the host, as KIND=VALUE, such as ingresses=off,configmaps=all, or nodes=all,daemonsets=translated to have DaemonSets; the kinds and their values are in docs/syncing.md")
	cmd.Flags().StringSliceVar(&o.annotations, "ingress-annotations", nil,
		"keys of annotations that go along with ingresses; tenants command the host's ingress controller by them")
	_ = cmd.RegisterFlagCompletionFunc("sync", completeSync)
	_ = cmd.RegisterFlagCompletionFunc("ingress-annotations", cobra.NoFileCompletions)
}

// options checks what was said.
func (o *syncOptions) options() (syncer.Options, error) {
	switches, err := resources.Parse(o.switches)
	if err != nil {
		return syncer.Options{}, fmt.Errorf("--sync: %w", err)
	}
	for _, key := range o.annotations {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return syncer.Options{}, fmt.Errorf("--ingress-annotations: %q is no key of an annotation: %s", key, problems[0])
		}
	}
	return syncer.Options{Sync: switches, IngressAnnotations: o.annotations}, nil
}

// args are the flags again, for another process.
func (o *syncOptions) args() (args []string) {
	for _, s := range o.switches {
		args = append(args, "--sync", quoted(s))
	}
	for _, key := range o.annotations {
		args = append(args, "--ingress-annotations", key)
	}
	return args
}

// quoted is one value of a flag that takes several: a label selector may hold commas.
func quoted(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// completeSync completes the last of the switches typed so far.
func completeSync(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	said := ""
	if i := strings.LastIndex(typed, ","); i >= 0 {
		said, typed = typed[:i+1], typed[i+1:]
	}
	var out []string
	for _, s := range resources.Complete(typed) {
		out = append(out, said+s)
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
