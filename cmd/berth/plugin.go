// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// plugin is the name of the binary as a plugin of kubectl.
const plugin = "kubectl-berth"

// renameTo makes help and errors call the command by another name. In texts, it renames the uses of the commands, but not those
// in other containers, which are behind "--".
func renameTo(root *cobra.Command, name string) {
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	var below []string
	for _, cmd := range root.Commands() {
		below = append(below, cmd.Name())
	}
	use := regexp.MustCompile(`(-- |\b)` + root.Name() + ` (` + strings.Join(append(below, "help", "completion"), "|") + `)\b`)
	rename := func(text string) string {
		return use.ReplaceAllStringFunc(text, func(found string) string {
			if strings.HasPrefix(found, "-- ") {
				return found
			}
			return strings.Replace(found, root.Name(), name, 1)
		})
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Short, cmd.Long, cmd.Example = rename(cmd.Short), rename(cmd.Long), rename(cmd.Example)
		for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			set.VisitAll(func(flag *pflag.Flag) { flag.Usage = rename(flag.Usage) })
		}
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(root)
}
