// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/progress"
	"github.com/berth-dev/berth/client/report"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

// pageSize is how many tenants one request reads.
const pageSize = 500

func newTree(host *flags.Host) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "tree [NAME]",
		Short: "Draw the tree of tenants with their usage",
		Long: `Draw the tree of tenants, or the part of it that begins with a tenant. For each tenant,
print its state, how many of its spaces are ready, and as bars what it uses of its
limits: namespaces, CPU, and memory. CPU and memory are those of the tenant and of all
tenants below it together, which its quota limits. Namespaces are the tenant's own.

With -o wide, there are bars of pods and storage, too. The formats json, yaml, and name
print the tenants that the tree has, in its order.

If the locale ($LC_ALL, $LC_CTYPE, or $LANG) isn't a UTF-8 one, the tree is drawn with
ASCII characters.`,
		Example: `  berth tenant tree
  berth tenant tree acme
  berth tenant tree acme -o wide`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: host.Names("tenants", 1),
		PreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains(treeFormats(), output) && output != "" {
				return fmt.Errorf("--output=%s: must be one of %s", output, strings.Join(treeFormats(), ", "))
			}
			return nil
		},
		RunE: host.Run(func(cmd *cobra.Command, args []string, host *hostapi.Client) error {
			var tenants []v1alpha1.Tenant
			var below []client.ListOption
			if len(args) == 1 {
				var root v1alpha1.Tenant
				if err := host.Get(cmd.Context(), client.ObjectKey{Name: args[0]}, &root); err != nil {
					return err
				}
				tenants, below = append(tenants, root), append(below, client.HasLabels{v1alpha1.LabelTreePrefix + args[0]})
			}
			all, err := list(cmd, host, below...)
			if err != nil {
				return err
			}
			if tenants = append(tenants, all...); len(tenants) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "No tenants found")
				return nil
			}
			return printTree(cmd.OutOrStdout(), tenants, output)
		}),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", strings.Join(treeFormats(), ", ")+" (default: table)")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(treeFormats(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func treeFormats() []string { return []string{"table", formatWide, formatName, "json", "yaml"} }

const formatWide, formatName = "wide", "name"

// printTree draws tenants, or prints the objects in the order of the drawing.
func printTree(out io.Writer, tenants []v1alpha1.Tenant, format string) error {
	if format == "" || format == "table" || format == formatWide {
		return report.Tree(out, tenants, report.StyleOf(os.Getenv), format == formatWide)
	}
	selected := genericclioptions.NewPrintFlags("")
	selected.OutputFormat = &format
	printer, err := selected.ToPrinter()
	if err != nil {
		return err
	}
	if format == formatName { // it has no lists
		for _, t := range report.InOrder(tenants) {
			fmt.Fprintln(out, progress.Name(t))
		}
		return nil
	}
	list := &metav1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	for _, t := range report.InOrder(tenants) {
		t.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Tenant"))
		list.Items = append(list.Items, runtime.RawExtension{Object: t})
	}
	return printer.PrintObj(list, out)
}

// list returns all tenants that the options select.
func list(cmd *cobra.Command, host client.Reader, options ...client.ListOption) (tenants []v1alpha1.Tenant, err error) {
	for next := ""; ; {
		var page v1alpha1.TenantList
		if err := host.List(cmd.Context(), &page, append(options, client.Limit(pageSize), client.Continue(next))...); err != nil {
			return nil, err
		}
		tenants = append(tenants, page.Items...)
		if next = page.Continue; next == "" {
			return tenants, nil
		}
	}
}
