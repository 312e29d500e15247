// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// begin and end enclose what is generated of a document.
const (
	begin = "<!-- results: begin -->\n"
	end   = "<!-- results: end -->\n"
)

// writeInto replaces the results in a document by these.
func (v verdict) writeInto(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	before, rest, ok := strings.Cut(string(content), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("write results: %s has no lines %q and %q", file, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	text := before + begin + "\n" + v.markdown() + "\n" + end + after
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

// markdown tells the figures, and each spec that did not pass with its reason.
func (v verdict) markdown() string {
	var b strings.Builder
	counts := map[string]int{}
	for _, r := range v.reasons {
		counts[r.Kind] += len(among(r, v.failed))
	}
	fmt.Fprintf(&b, "Run on %s, in %s:\n\n", v.began.UTC().Format(time.DateOnly), v.took.Round(time.Minute))
	b.WriteString("| | specs |\n|---|---|\n")
	fmt.Fprintf(&b, "| passed | %d |\n", len(v.passed))
	fmt.Fprintf(&b, "| failed: a rule of Berth's forbids tenants what they do | %d |\n", counts[forbidden])
	fmt.Fprintf(&b, "| failed: Berth lacks it so far | %d |\n", counts[gap])
	fmt.Fprintf(&b, "| failed: the cluster of this run lacks it | %d |\n", counts[environment])
	fmt.Fprintf(&b, "| skipped themselves | %d |\n", len(v.skipped))
	for _, kind := range []struct{ name, title string }{
		{forbidden, "Forbidden to tenants"}, {gap, "Missing in Berth"}, {environment, "Missing in the cluster"},
	} {
		if counts[kind.name] == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s\n", kind.title)
		for _, r := range v.reasons {
			if r.Kind == kind.name {
				section(&b, r, among(r, v.failed))
			}
		}
	}
	if len(v.skipped) > 0 {
		b.WriteString("\n### Skipped themselves\n")
		for _, r := range v.reasons {
			section(&b, r, among(r, v.skipped))
		}
	}
	return b.String()
}

func section(b *strings.Builder, r reason, specs []string) {
	if len(specs) == 0 {
		return
	}
	rule := ""
	if r.Rule != "" {
		rule = " (" + r.Rule + ")"
	}
	fmt.Fprintf(b, "\n**%s**%s\n\n", strings.TrimSpace(r.Why), rule)
	list(b, specs)
}

// among returns the specs of a reason that are in a set.
func among(r reason, set map[string]bool) []string {
	var found []string
	for _, spec := range r.Specs {
		if set[spec] {
			found = append(found, spec)
		}
	}
	return found
}

func list(b *strings.Builder, specs []string) {
	for _, spec := range specs {
		fmt.Fprintf(b, "- `%s`\n", spec)
	}
}
