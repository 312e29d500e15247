// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/listing"
)

// Get has the flags of commands that print objects as kubectl get does.
type Get struct {
	print     *genericclioptions.PrintFlags
	output    string
	labels    string
	watch     bool
	noHeaders bool
}

// AddTo declares the flags.
func (g *Get) AddTo(cmd *cobra.Command) {
	g.AddPrintTo(cmd)
	cmd.Flags().StringVarP(&g.labels, "selector", "l", "", "print the objects that this label selector selects")
	cmd.Flags().BoolVarP(&g.watch, "watch", "w", false, "after the objects, print their changes until you interrupt the command")
	_ = cmd.RegisterFlagCompletionFunc("selector", cobra.NoFileCompletions)
}

// AddPrintTo declares the flags that say how objects are printed.
func (g *Get) AddPrintTo(cmd *cobra.Command) {
	g.print = genericclioptions.NewPrintFlags("")
	g.print.OutputFormat = &g.output
	g.print.AddFlags(cmd)
	hideRare(cmd)
	cmd.Flags().Lookup("output").Usage = "table, wide, name, json, yaml, jsonpath=..., or go-template=... (default: table)"
	cmd.Flags().BoolVar(&g.noHeaders, "no-headers", false, "don't print column headers")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "wide", "name", "json", "yaml", "jsonpath="}, cobra.ShellCompDirectiveNoFileComp))
}

// Run prints the objects of a query. A column that is named is the first one of a table.
func (g *Get) Run(cmd *cobra.Command, host *hostapi.Client, query listing.Query, first string) error {
	return g.RunOn(cmd, host.Berth, query, first)
}

// RunOn is Run for objects of another API group.
func (g *Get) RunOn(cmd *cobra.Command, api rest.Interface, query listing.Query, first string) error {
	query.Labels = g.labels
	get := listing.Get{
		Query: query, Watch: g.watch, Wide: g.output == "wide", NoHeaders: g.noHeaders, First: first, Each: g.output == "name",
		Out: cmd.OutOrStdout(), Hints: cmd.ErrOrStderr(),
	}
	if g.output != "" && g.output != "table" && g.output != "wide" {
		printer, err := g.print.ToPrinter()
		if err != nil {
			return err
		}
		get.Printer = printer
	}
	return get.Run(cmd.Context(), api)
}

// hideRare hides flags of kubectl's printers that few need. They work as there.
func hideRare(cmd *cobra.Command) {
	for _, name := range []string{"allow-missing-template-keys", "show-managed-fields", "template"} {
		_ = cmd.Flags().MarkHidden(name)
	}
}
