// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage has the command that prints what tenants use of their limits. It uses the API of the host with the rights of the
// caller.
package usage

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

// New returns the command.
func New() *cobra.Command {
	var all bool
	var selector, output string
	var noHeaders bool
	host := &flags.Host{}
	past := &period{}
	cmd := &cobra.Command{
		Use:   "usage [TENANT...]",
		Short: "Print what tenants use of their limits",
		Long: `Print what tenants use of their limits as of now, of all tenants or of those that you name.
The columns are:
  SPACES      How many of the tenant's spaces are ready.
  NAMESPACES  The namespaces of the tenant's spaces, and the quota in its spec.
  CPU         What the tenant's own spaces use of limits.cpu, or of requests.cpu if that has
              no limit.
  MEMORY      limits.memory or requests.memory, as for CPU.
  BELOW       How many tenants there are below this one.
  TOTAL CPU, TOTAL MEMORY
              What the tenant and the tenants below it use together, of the tenant's quota.

The figures are what pods request or are limited to, and how many objects there are. They
aren't what processes consume. They come from the status of the Tenant objects, which
follows a change within seconds.

With -o wide, each resource of the quotas has a line of its own. The percent is that of the
total, and for namespaces that of the tenant's own. The formats csv, json,
yaml, and jsonpath have the same figures as numbers: CPU in cores, memory and storage in bytes, and
everything else as a count. The percent of a limit of 0 is empty.

With --since, the command prints what tenants used in a period of the past. It needs a running
Berth on the data directory. The records survive restarts. They are by hour for 35 days, and then
by day (UTC) for 400 days, so that the period is extended to whole hours or days. The columns are:
  REQUESTS       Requests to the tenant's spaces that have ended, except those of their own
                 controllers.
  ERRORS         Those with a status code of 5xx, or whose response was cut off.
  CPU-H          CPU that pods requested, in cores multiplied by hours.
  MEMORY-GIB-H   Memory that pods requested, in GiB multiplied by hours.
  STORAGE-GIB-H  Storage that claims requested, in GiB multiplied by hours.
  OBJECTS        Objects in the spaces, on average.
  MEASURED       How long the use of the host was measured. While Berth doesn't run, it
                 measures nothing.
With -o wide and in the other formats, each space has a line of its own. The format json lists
the requests by verb and status code. For spaces beyond 500 of a tenant in an hour, the line is
that of the space "(others)".`,
		Example: `  berth usage
  berth usage acme -o wide
  berth usage -l tree.berth.dev/acme    # all tenants below acme
  berth usage -T -o csv > usage.csv
  berth usage -T --since 1h
  berth usage acme --since 30d -o csv > acme.csv
  berth usage --since 2026-10-01 --until 2026-11-01 -o json
  berth usage -o jsonpath='{range [*]}{.tenant} {.resource} {.used}{"\n"}{end}'`,
		ValidArgsFunction: host.Names("tenants", 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if past.since != "" || past.until != "" {
				return runPast(cmd, past, host, pastOptions{tenants: args, all: all, selector: selector, output: output, noHeaders: noHeaders})
			}
			show, err := printerOf(output, noHeaders)
			if err != nil {
				return err
			}
			switch {
			case all && len(args) > 0:
				return errors.New("--all-tenants prints the usage of all tenants; don't name some")
			case selector != "" && len(args) > 0:
				return fmt.Errorf("--selector=%s: selects among all tenants; don't name some", selector)
			}
			return host.Run(func(cmd *cobra.Command, args []string, host *hostapi.Client) error {
				tenants, failed := read(cmd, host, args, selector)
				if len(tenants) > 0 {
					return errors.Join(show(cmd.OutOrStdout(), tenants), failed)
				}
				if failed != nil {
					return failed
				}
				fmt.Fprintln(cmd.ErrOrStderr(), "No tenants found")
				return show(cmd.OutOrStdout(), nil)
			})(cmd, args)
		},
	}
	host.AddTo(cmd)
	past.addTo(cmd)
	cmd.Flags().BoolVarP(&all, "all-tenants", "T", false, "print the usage of all tenants, as without names")
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "print the usage of the tenants that this label selector selects")
	cmd.Flags().StringVarP(&output, "output", "o", "", strings.Join(formats(), ", ")+"... (default: table)")
	cmd.Flags().BoolVar(&noHeaders, "no-headers", false, "don't print column headers")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("selector", cobra.NoFileCompletions)
	return cmd
}

// pageSize is how many tenants one request reads.
const pageSize = 500

// read returns the tenants that are named, or all that a selector selects. A name that doesn't exist doesn't keep the others.
func read(cmd *cobra.Command, host client.Reader, names []string, selector string) (tenants []v1alpha1.Tenant, err error) {
	var errs []error
	for _, name := range names {
		var tenant v1alpha1.Tenant
		if err := host.Get(cmd.Context(), client.ObjectKey{Name: name}, &tenant); err != nil {
			errs = append(errs, err)
			continue
		}
		tenants = append(tenants, tenant)
	}
	if len(names) > 0 {
		return tenants, errors.Join(errs...)
	}
	options := &client.ListOptions{Limit: pageSize}
	if selector != "" {
		options.Raw = &metav1.ListOptions{LabelSelector: selector}
	}
	for {
		var page v1alpha1.TenantList
		if err := host.List(cmd.Context(), &page, options); err != nil {
			return nil, err
		}
		tenants = append(tenants, page.Items...)
		if options.Continue = page.Continue; page.Continue == "" {
			return tenants, nil
		}
	}
}
