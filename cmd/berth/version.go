// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// version is set by the linker; see Makefile.
var version = ""

type versionInfo struct {
	Berth      string `json:"berth"`
	Kubernetes string `json:"kubernetes"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of Berth and of its Kubernetes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := printVersion(readVersion(), output)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), text)
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml (default: plain text)")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func readVersion() versionInfo {
	info := versionInfo{Berth: version, Kubernetes: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	if info.Berth == "" {
		info.Berth = build.Main.Version
	}
	for _, dep := range build.Deps {
		if dep.Path == "k8s.io/kubernetes" {
			info.Kubernetes = dep.Version
		}
	}
	return info
}

func printVersion(info versionInfo, output string) (string, error) {
	switch output {
	case "":
		return fmt.Sprintf("Berth %s (Kubernetes %s, %s, %s)", info.Berth, info.Kubernetes, info.Go, info.Platform), nil
	case "json":
		out, err := json.MarshalIndent(info, "", "  ")
		return string(out), err
	case "yaml":
		out, err := yaml.Marshal(info)
		return string(out[:max(0, len(out)-1)]), err
	default:
		return "", fmt.Errorf("--output=%s: must be json or yaml", output)
	}
}
