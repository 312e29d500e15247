// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"cmp"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// dataDirFlag is the name of the flag for the data directory.
const dataDirFlag = "data-dir"

// DefaultDataDir returns the data directory that is used if no flag sets another one.
func DefaultDataDir() string {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "."
	}
	// The image sets it, so that commands that run in the container find the directory.
	return cmp.Or(os.Getenv("BERTH_DATA_DIR"), filepath.Join(home, ".berth"))
}

// AddDataDir declares the flag for the data directory of a command.
func AddDataDir(cmd *cobra.Command, dir *string) {
	addDataDir(cmd.Flags(), dir, "directory in which Berth keeps all of its data; $BERTH_DATA_DIR sets another default")
	_ = cmd.MarkFlagDirname(dataDirFlag)
}

func addDataDir(flags *pflag.FlagSet, dir *string, usage string) {
	flags.StringVar(dir, dataDirFlag, DefaultDataDir(), usage)
}
