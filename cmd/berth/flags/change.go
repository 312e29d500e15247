// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// Values of --dry-run.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// Change has the flags of commands that change objects.
type Change struct {
	dryRun string
	print  *genericclioptions.PrintFlags
}

// AddTo declares --dry-run, and with output also -o.
func (c *Change) AddTo(cmd *cobra.Command, output bool) {
	cmd.Flags().StringVar(&c.dryRun, "dry-run", dryRunNone, "none, client, or server. With client, nothing is sent that would change something. With server, the host checks the change and doesn't make it")
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{dryRunNone, dryRunClient, dryRunServer}, cobra.ShellCompDirectiveNoFileComp))
	if output {
		c.print = genericclioptions.NewPrintFlags("")
		c.print.AddFlags(cmd)
		hideRare(cmd)
		cmd.Flags().Lookup("output").Usage = "name, json, yaml, jsonpath=..., or go-template=... (default: a line that says what is done)"
		_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"name", "json", "yaml", "jsonpath="}, cobra.ShellCompDirectiveNoFileComp))
	}
}

// Check rejects a value of --dry-run that doesn't exist.
func (c *Change) Check() error {
	if !slices.Contains([]string{dryRunNone, dryRunClient, dryRunServer}, c.dryRun) {
		return fmt.Errorf("--dry-run=%s: must be none, client, or server", c.dryRun)
	}
	return nil
}

// Dry reports whether nothing is to be changed.
func (c *Change) Dry() bool { return c.dryRun != dryRunNone }

// Sends reports whether the host is asked at all.
func (c *Change) Sends() bool { return c.dryRun != dryRunClient }

// Of wraps a client so that its writes change nothing if the flags say so.
func (c *Change) Of(host client.Client) client.Client {
	if c.Dry() {
		return client.NewDryRunClient(host)
	}
	return host
}

// Line prints what has been done to an object, as kubectl does.
func (c *Change) Line(cmd *cobra.Command, object, done string) {
	fmt.Fprintf(cmd.OutOrStdout(), "%s %s%s\n", object, done, map[string]string{dryRunClient: " (dry run)", dryRunServer: " (server dry run)"}[c.dryRun])
}

// Print prints an object, or what has been done to it.
func (c *Change) Print(cmd *cobra.Command, object client.Object, kind, name, done string) error {
	if c.print == nil || *c.print.OutputFormat == "" {
		c.Line(cmd, name, done)
		return nil
	}
	printer, err := c.print.ToPrinter()
	if err != nil {
		return err
	}
	object.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	return printer.PrintObj(object.(runtime.Object), cmd.OutOrStdout())
}
