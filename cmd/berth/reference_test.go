// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// It is a test that writes the page because a package main can't be imported.
//go:generate env BERTH_UPDATE_REFERENCE=1 go test . -vet=off -count=1 -run ^TestTheReferenceOfCommandsIsFresh$

const referenceHead = `<!-- Written by ` + "`make generate`" + ` from the commands in cmd/berth. Change their help there. -->
# Commands

` + "`berth help COMMAND`" + ` prints the same. ` + "`berth completion SHELL`" + ` prints a script that completes commands, flags, and names of spaces.

`

// docs/reference/cli.md contains the help of all commands.
func TestTheReferenceOfCommandsIsFresh(t *testing.T) {
	t.Setenv("BERTH_DATA_DIR", "~/.berth") // the default must not depend on the environment
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	const file = "../../docs/reference/cli.md"
	var page bytes.Buffer
	page.WriteString(referenceHead)
	writeReference(t, &page, newRoot("berth"))
	if os.Getenv("BERTH_UPDATE_REFERENCE") != "" {
		if err := os.WriteFile(file, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(have), page.String()); diff != "" {
		t.Errorf("%s is stale, run make generate: -page +commands:\n%s", file, diff)
	}
}

func writeReference(t *testing.T, page *bytes.Buffer, command *cobra.Command) {
	t.Helper()
	if command.Hidden || command.Name() == "help" {
		return
	}
	command.DisableAutoGenTag = true
	link := func(name string) string {
		return "#" + strings.ReplaceAll(strings.TrimSuffix(name, ".md"), "_", "-")
	}
	var text strings.Builder
	if err := doc.GenMarkdownCustom(command, &text, link); err != nil {
		t.Fatal(err)
	}
	content := text.String()
	if command.Name() == "up" || command.Name() == "serve" || command.Name() == "operator" {
		content = strings.Replace(content, command.LocalFlags().FlagUsages(), groupedFlags(command), 1)
	}
	content = strings.Replace(content, "### Options inherited from parent commands", "### Options that choose the host", 1)
	page.WriteString(content)
	for _, below := range command.Commands() {
		writeReference(t, page, below)
	}
}
