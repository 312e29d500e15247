// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/vcluster/pki"
)

const kubeconfigSuffix = ".kubeconfig"

func newKubeconfig() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "kubeconfig SPACE",
		Short: "Print the kubeconfig of a space",
		Long: `Print the kubeconfig of a space's admin, as 'berth up' wrote it. "host" is the
embedded host cluster's. What is printed is good for half a year at least: its
certificate is renewed before, here and by a berth that runs.`,
		Example: `  berth kubeconfig demo > demo.kubeconfig
  kubectl --kubeconfig <(berth kubeconfig demo) get pods`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			known, _ := knownKubeconfigs(dir)
			return known, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			known, err := knownKubeconfigs(dir)
			if err != nil {
				return err
			}
			if !slices.Contains(known, args[0]) {
				return fmt.Errorf("no space %q in %s%s", args[0], dir, hint(known))
			}
			data, err := freshKubeconfig(dir, args[0])
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(data)
			return err
		},
	}
	addDataDir(cmd, &dir)
	return cmd
}

// freshKubeconfig reads a kubeconfig, and renews it if it is time, whether or
// not a berth runs.
func freshKubeconfig(dir, name string) ([]byte, error) {
	keys := filepath.Join(dir, "pki")
	if !pki.Exists(keys) {
		return os.ReadFile(kubeconfigPath(dir, name))
	}
	port, err := pki.OpenCA(keys, "berth")
	if err != nil {
		return nil, err
	}
	return renewKubeconfig(dir, name, "", port)
}

func hint(known []string) string {
	if len(known) == 0 {
		return "; start one with: berth up"
	}
	return "; there is: " + strings.Join(known, ", ")
}

func kubeconfigPath(dir, space string) string { return filepath.Join(dir, space+kubeconfigSuffix) }

// knownKubeconfigs lists the spaces that have a kubeconfig in dir, sorted.
func knownKubeconfigs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list kubeconfigs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), kubeconfigSuffix); ok && e.Type().IsRegular() {
			names = append(names, name)
		}
	}
	return names, nil
}
