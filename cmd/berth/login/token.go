// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client/login"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

// newToken returns the command that kubectl calls.
func newToken() *cobra.Command {
	client := &login.Client{}
	cmd := &cobra.Command{
		Use:   "token --issuer URL",
		Short: "Print the token of the user who is logged in",
		Long: `Print the token of the user who is logged in at a provider, as an ExecCredential of
client.authentication.k8s.io/v1. kubectl calls this command, as the kubeconfig of 'berth
login' names it. If the token has expired, the command gets another one. Several of these
commands can run at once: one gets it, and the others wait.`,
		Example:           "  berth login token --issuer https://dex.example.com",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := complete(client); err != nil {
				return flags.Error(err)
			}
			tokens, err := client.Token(cmd.Context())
			if err != nil {
				return flags.Error(loginAgain(client, err))
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(tokens.Credential())
		},
	}
	addClient(cmd, client)
	cmd.Flags().StringVar(&client.SecretFile, "client-secret-file", "", "file with the secret of the client, if the issuer requires one (default: a public client)")
	return cmd
}

// NewLogout returns the command that deletes the tokens.
func NewLogout() *cobra.Command {
	client := &login.Client{}
	cmd := &cobra.Command{
		Use:   "logout --issuer URL",
		Short: "Delete the tokens of 'berth login' from this machine",
		Long: `Delete the tokens that 'berth login' has got from a provider. The contexts of your
kubeconfig stay: they have no secret, and ask you to log in again.

The command doesn't end your session at the provider, and a copy of a token stays good until
it expires.`,
		Example:           "  berth logout --issuer https://dex.example.com",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := complete(client); err != nil {
				return flags.Error(err)
			}
			deleted, err := client.Logout(cmd.Context())
			if err != nil {
				return err
			}
			message := "You were not logged in."
			if deleted {
				message = "You are logged out."
			}
			_, err = fmt.Fprintln(cmd.ErrOrStderr(), message)
			return err
		},
	}
	addClient(cmd, client)
	_ = cmd.Flags().MarkHidden("certificate-authority") // of no use here
	return cmd
}

// complete rejects invalid flags, and finds the directory of tokens.
func complete(client *login.Client) error {
	if client.Dir = cmp.Or(client.Dir, defaultDir()); client.Dir == "" {
		return errors.New("you have no cache directory; use --token-dir")
	}
	return client.Complete()
}

// defaultDir returns the directory of tokens; "" if the user has none.
func defaultDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "berth", "login")
}
