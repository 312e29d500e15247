// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package login has the commands that log a user in at an OpenID Connect provider.
package login

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client/connection"
	"github.com/berth-dev/berth/client/login"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

// options are the flags of the command that are not of the client.
type options struct {
	server                                        login.Server
	serverCA, space, context, kubeconfig, dataDir string
	device, noBrowser                             bool
	port                                          int
	timeout                                       time.Duration
}

// defaultID is the ID of a client that is registered for this program.
const defaultID = "berth"

// New returns the command.
func New() *cobra.Command {
	client, o := &login.Client{}, &options{}
	cmd := &cobra.Command{
		Use:   "login --issuer URL [--server URL] [--space SPACE] [--device]",
		Short: "Log in with OpenID Connect, and write a kubeconfig",
		Long: `Log in at an OpenID Connect provider that Berth knows (--authentication-config of 'berth
up'), and write a context to your kubeconfig. The context becomes the current one.

The command opens a browser. If it can't, open the URL that it prints. With --device, it
prints a code, and you can log in with a browser on any other machine.

The kubeconfig has no secret. It has kubectl call 'berth login token'. The tokens are in a
file that only you can read. When a token expires, the command gets another one, for as long
as the provider lets it. Then log in again.

Without --space, the context leads to the space with the name of your tenant. Without
--server, the context keeps the server of an earlier login. The first time, it gets that of
the Berth whose data directory is on this machine.

The command prints the name of the context to standard output, and all else to standard
error.`,
		Example: `  berth login --issuer https://dex.example.com --server https://berth.example.com
  berth login --issuer https://dex.example.com --server https://berth.example.com --device
  berth login --issuer https://127.0.0.1:5556/dex --certificate-authority dex-ca.crt && kubectl get pods`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
			defer cancel()
			cmd.SetContext(ctx)
			return flags.Error(run(cmd, client, o))
		},
	}
	addClient(cmd, client)
	flags.AddDataDir(cmd, &o.dataDir)
	cmd.Flags().StringVar(&client.SecretFile, "client-secret-file", "", "file with the secret of the client, if the issuer requires one (default: a public client)")
	cmd.Flags().StringSliceVar(&client.Scopes, "scope", nil, "scopes to request (default: what the issuer supports of openid, email, profile, groups, and offline_access)")
	cmd.Flags().StringVar(&o.server.URL, "server", "", "URL of Berth (default: that of an earlier login, or of the Berth on this machine)")
	cmd.Flags().StringVar(&o.serverCA, "server-certificate-authority", "", "file with the CAs of Berth's certificate, in PEM (default: those of the system)")
	cmd.Flags().StringVar(&o.space, "space", "", "space that the context leads to (default: the space with the name of your tenant)")
	cmd.Flags().StringVar(&o.context, "context", "", "name of the context, and of its cluster and user (default: berth, or berth_SPACE)")
	cmd.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "file to write the context to (default: as of kubectl)")
	cmd.Flags().BoolVar(&o.device, "device", false, "log in with a browser on any machine, by a code")
	cmd.Flags().BoolVar(&o.noBrowser, "no-browser", false, "only print the URL, and open no browser")
	cmd.Flags().IntVar(&o.port, "redirect-port", 0, "port of this machine that the issuer sends the browser back to (default: a free port)")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long the login may take")
	cmd.MarkFlagsMutuallyExclusive("device", "no-browser")
	cmd.MarkFlagsMutuallyExclusive("device", "redirect-port")
	for _, flag := range []string{"scope", "server", "space", "context", "redirect-port", "timeout"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	cmd.AddCommand(newToken())
	return cmd
}

// addClient declares the flags that find the tokens of a client.
func addClient(cmd *cobra.Command, client *login.Client) {
	cmd.Flags().StringVar(&client.Issuer, "issuer", "", "URL of the OpenID Connect provider")
	cmd.Flags().StringVar(&client.ID, "client-id", defaultID, "ID by which the issuer knows this program; it must be an audience in Berth's configuration of the issuer")
	cmd.Flags().StringVar(&client.CAFile, "certificate-authority", "", "file with the CAs of the issuer's certificate, in PEM (default: those of the system)")
	cmd.Flags().StringVar(&client.Dir, "token-dir", "", "directory of the files with tokens (default: berth/login in your cache directory)")
	_ = cmd.MarkFlagRequired("issuer")
	_ = cmd.MarkFlagDirname("token-dir")
	for _, flag := range []string{"issuer", "client-id"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// run logs in, writes the kubeconfig, and asks the server who has logged in.
func run(cmd *cobra.Command, client *login.Client, o *options) error {
	if err := complete(client); err != nil {
		return err
	}
	if err := o.findServer(); err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
	var tokens *login.Tokens
	var err error
	if o.device {
		tokens, err = client.Device(cmd.Context(), func(url, code string) {
			say("Open this URL in a browser on any machine, and check that it shows the code %q, or enter it:\n\n  %s\n", code, url)
		})
	} else {
		tokens, err = client.Browser(cmd.Context(), o.port, func(url string) {
			say("Log in with your browser. If none opens, open this URL on this machine:\n\n  %s\n", url)
			if !o.noBrowser {
				openBrowser(url)
			}
		})
	}
	if err != nil {
		return err
	}
	exec, err := execOf(client)
	if err != nil {
		return err
	}
	user, tenant, err := o.server.WhoAmI(cmd.Context(), tokens)
	if err != nil {
		return fmt.Errorf("you are logged in at %s, but can't use %s, and the kubeconfig stays as it is: %w", client.Issuer, o.server.URL, err)
	}
	path, err := login.WriteKubeconfig(o.kubeconfig, o.context, o.server, exec)
	if err != nil {
		return err
	}
	say("You are %q of the tenant %s. The context %s of %s is the current one.", user, tenant, o.context, path)
	fmt.Fprintln(cmd.OutOrStdout(), o.context)
	return nil
}

// findServer completes the name of the context, and the server: that of the flags, or of the context if it is of an earlier login, or of
// the Berth on this machine.
func (o *options) findServer() (err error) {
	if o.context == "" {
		if o.context = "berth"; o.space != "" {
			o.context = connection.ContextName(o.space, "")
		}
	}
	before, err := login.ReadServer(o.kubeconfig, o.context)
	if err != nil {
		return err
	}
	space := o.space
	switch {
	case o.server.URL == "" && before != nil && o.space == "":
		o.server, space = *before, "" // the space is in its path
	case o.server.URL == "" && before != nil:
		u, err := url.Parse(before.URL)
		if err != nil {
			return fmt.Errorf("read the server of the context %s: %w", o.context, err)
		}
		o.server = *before
		o.server.URL = u.Scheme + "://" + u.Host
	case o.server.URL == "":
		if o.server, err = localServer(o.dataDir); err != nil {
			return err
		}
	}
	if err := o.server.Complete(space); err != nil {
		return err
	}
	if before != nil && before.URL == o.server.URL {
		o.server.CA = before.CA
	}
	if o.serverCA != "" {
		if o.server.CA, err = os.ReadFile(o.serverCA); err != nil {
			return fmt.Errorf("--server-certificate-authority=%s: %w", o.serverCA, err)
		}
	}
	return nil
}

// clientArgs are the flags that find the tokens of a client, and refresh them.
func clientArgs(client *login.Client) []string {
	args := []string{"--issuer=" + client.Issuer}
	if client.ID != defaultID {
		args = append(args, "--client-id="+client.ID)
	}
	if client.CAFile != "" {
		args = append(args, "--certificate-authority="+client.CAFile)
	}
	if client.SecretFile != "" {
		args = append(args, "--client-secret-file="+client.SecretFile)
	}
	if client.Dir != defaultDir() {
		args = append(args, "--token-dir="+client.Dir)
	}
	return args
}

// execOf returns the command that prints a token of a client.
func execOf(client *login.Client) (login.Exec, error) {
	command, err := os.Executable()
	if err != nil {
		return login.Exec{}, fmt.Errorf("find this command for the kubeconfig: %w", err)
	}
	return login.Exec{Command: command, Args: append([]string{"login", "token"}, clientArgs(client)...)}, nil
}

// loginAgain adds to an error that the user must log in again.
func loginAgain(client *login.Client, err error) error {
	if errors.Is(err, login.ErrLoggedOut) {
		return fmt.Errorf("%w; run: berth login %s", err, strings.Join(clientArgs(client), " "))
	}
	return err
}
