// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroup is a section of flags in the help of a command.
type flagGroup struct {
	name  string
	flags []string
}

// flagGroups are the groups of the commands that run spaces. All other flags are in the first group.
func flagGroups() []flagGroup {
	return []flagGroup{
		{name: "General"},
		{"Space", []string{"config", "platform-name", "space", "spaces-max", "idle-after", "emulated-version", "dedicated", "dedicated-max", "dedicated-pods", "store-secrets"}},
		{"Host", []string{"host-kubeconfig", "nodes", "space-role", "operator", "leader-elect", "lease-namespace"}},
		{"API endpoint", []string{"listen", "advertise", "tls-cert-file", "tls-key-file", "tls-ca-file", "space-domain", "client-ca-file", "token-auth-file", "basic-auth-file", "authentication-config", "authorization-policy-file", "default-tenant", "kubeconfig-secrets", "argocd-namespace"}},
		{"Webhook", []string{
			"authentication-token-webhook-config-file", "authentication-token-webhook-cache-ttl", "authentication-token-webhook-version",
			"authentication-token-webhook-tenant-extra", "authentication-token-webhook-roles-extra", "authentication-token-webhook-project-extra",
			"authorization-webhook-config-file", "authorization-webhook-version", "authorization-webhook-cache-authorized-ttl", "authorization-webhook-cache-unauthorized-ttl",
		}},
		{"Pod network", []string{"pods-address", "pods-port", "pods-namespace", "pods-selector", "dns-port", "dns-upstream", "host-domain"}},
		{"Snapshot", []string{"snapshot-to", "snapshot-also-to", "snapshot-every", "snapshot-keep"}},
		{"Observability", []string{"audit-log-dir", "audit-log-maxsize", "audit-log-maxbackup", "audit-policy-file", "audit-webhook-config-file", "metrics-listen", "trace-endpoint", "trace-per-million", "log-format", "verbosity"}},
	}
}

// groupedUsage prints the usage of a command, with its flags in groups.
func groupedUsage(cmd *cobra.Command) error {
	_, err := fmt.Fprintf(cmd.OutOrStderr(), "Usage:\n  %s\n\nExamples:\n%s\n\n%s", cmd.UseLine(), cmd.Example, groupedFlags(cmd))
	return err
}

func groupedFlags(cmd *cobra.Command) string {
	groups := flagGroups()
	sets := make([]pflag.FlagSet, len(groups))
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		inGroup := func(g flagGroup) bool { return slices.Contains(g.flags, flag.Name) }
		sets[max(0, slices.IndexFunc(groups, inGroup))].AddFlag(flag)
	})
	var sections []string
	for i := range sets {
		if usages := sets[i].FlagUsagesWrapped(120); usages != "" {
			sections = append(sections, groups[i].name+" flags:\n"+usages)
		}
	}
	return strings.Join(sections, "\n")
}
