// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/connection"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

func newConnect(host *flags.Host) *cobra.Command {
	target := target{host: host}
	var file string
	var prints bool
	cmd := &cobra.Command{
		Use:   "connect NAME [--as-owner OWNER] [-- COMMAND ARGS...]",
		Short: "Get a kubeconfig of a space, or run a command with it",
		Long: `Get the kubeconfig of a space's admin, or of an owner, and use it in one of three ways:
  - With a COMMAND, run it with KUBECONFIG set, and exit with its exit code.
  - With --print, print the kubeconfig.
  - Otherwise, add the context berth_NAME to your kubeconfig, and make it the current one.

The kubeconfig comes from a Secret on the host, which you need the right to list, or
from the data directory of a 'berth up' on this machine. Its credentials are valid for
24 hours at most. Berth renews them, so connect again to get new ones.

If the address in the kubeconfig doesn't answer within 2 seconds, the command forwards a
port of this machine to the pod of Berth by the host's API. The kubeconfig then leads to
this port until the COMMAND ends. Without a COMMAND, the command runs until you interrupt
it.

To issue kubeconfigs for other users where Berth runs, see 'berth kubeconfig'.`,
		Example: `  berth space connect solar -- kubectl get namespaces
  berth space connect solar --as-owner alice -- kubectl create namespace production
  berth space connect solar && kubectl get pods
  berth space connect solar --print > solar.kubeconfig`,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash >= 0 && dash < len(args) {
				args = args[:dash]
			}
			if len(args) != 1 {
				return fmt.Errorf("connect needs the name of one space, and got %q; put a command after '--'", args)
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if cmd.ArgsLenAtDash() >= 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return host.Names("spaces", 1)(cmd, args, word)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			command := args[1:]
			if prints && len(command) > 0 {
				return errors.New("--print prints the kubeconfig, and runs no command; leave out one of them")
			}
			if file != "" && (prints || len(command) > 0) {
				return fmt.Errorf("--kubeconfig=%s is a file to add a context to; leave out --print and the command, or use --host-kubeconfig to choose the host", file)
			}
			options, err := target.options(cmd, args[0])
			if err != nil {
				return err
			}
			if prints {
				return target.explain(printConfig(cmd, options), options)
			}
			open, err := connection.Open(cmd.Context(), options)
			if err != nil {
				return target.explain(err, options)
			}
			defer open.Close()
			if len(command) > 0 {
				return connection.Run(open.Config, command, connection.Streams{In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()})
			}
			return merge(cmd, open, file)
		},
	}
	cmd.Flags().StringVar(&target.owner, "as-owner", "", "connect as this owner: NAME, or KIND:NAME with KIND User or Group (default: as the space's admin)")
	cmd.Flags().StringVar(&target.namespace, "secret-namespace", "", "host namespace of the Secret with the kubeconfig (default: all are searched)")
	cmd.Flags().StringVar(&file, "kubeconfig", "", "file to add the context to, instead of $KUBECONFIG or ~/.kube/config; --host-kubeconfig chooses the host")
	cmd.Flags().BoolVar(&prints, "print", false, "print the kubeconfig, with the address that Berth has written")
	_ = cmd.RegisterFlagCompletionFunc("as-owner", host.Owners())
	_ = cmd.RegisterFlagCompletionFunc("secret-namespace", host.Namespaces())
	return cmd
}

func printConfig(cmd *cobra.Command, options connection.Options) error {
	config, _, err := connection.Load(cmd.Context(), options)
	if err != nil {
		return err
	}
	data, err := clientcmd.Write(*config.Config)
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(data)
	return err
}

// merge adds the context to a kubeconfig. While a port is forwarded, it leads there. Afterward, it has the address that Berth has
// written, which other machines and networks may reach.
func merge(cmd *cobra.Command, open *connection.Connection, file string) error {
	written, err := open.Config.Merge(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Context %q is the current one in %s\n", open.Config.CurrentContext, written)
	if !open.Forwards() {
		return nil
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "The context works while this command runs. To end it, press Ctrl+C")
	err = open.Wait(cmd.Context())
	_, failed := open.Berth.Merge(file)
	return errors.Join(err, failed)
}

// target is the space that a command connects to.
type target struct {
	host             *flags.Host
	owner, namespace string
}

func (t *target) options(cmd *cobra.Command, space string) (connection.Options, error) {
	options := connection.Options{Wanted: connection.Wanted{Space: space, Namespace: t.namespace}, Notes: cmd.ErrOrStderr(), LocalFirst: t.host.Here()}
	options.OwnerKind, options.Owner = connection.ParseOwner(t.owner)
	if options.OwnerKind == v1alpha1.ServiceAccountKind || options.OwnerKind == v1alpha1.HostServiceAccountKind {
		return options, fmt.Errorf("--as-owner=%s: must be a User or a Group; a ServiceAccount has no kubeconfig and uses its tokens, see 'kubectl create token'", t.owner)
	}
	options.Host, options.HostError = t.host.Open(cmd)
	if !t.host.Elsewhere() {
		options.Local = localConfig(cmd.Context(), t.host.DataDir, options.Wanted, options.Host)
	}
	if options.Local == nil && options.Host == nil {
		return options, options.HostError
	}
	if options.LocalFirst && options.Local == nil {
		return options, fmt.Errorf("--data-dir=%s: has no kubeconfig of space %s; see 'berth kubeconfig' for those that it has", t.host.DataDir, space)
	}
	return options, nil
}

func (t *target) explain(err error, options connection.Options) error {
	if options.Host == nil {
		return err
	}
	return hostapi.Explain(err, options.Host.Config.Host)
}
