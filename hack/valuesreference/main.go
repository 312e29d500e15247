// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package main writes the reference page of a chart's values from its values.yaml: each value with its default, and the
// comment above it. `make generate` runs it.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// head is the beginning of the page of a chart: its name, and a sentence about the page that says what to set.
const head = `<!-- Written by ` + "`make generate`" + ` from %[1]s/values.yaml. Change the comments there. -->
# %[2]s

The values of [` + "`%[1]s`" + `](../../%[1]s), with their defaults. The chart rejects values that this page doesn't list. %[3]s

| value | default |
|---|---|
`

// page is the title of a chart's page, and where the rest is.
type page struct{ title, more string }

func pages() map[string]page {
	return map[string]page{
		"charts/berth": {"Values of the chart", "[Install Berth in a\ncluster](../guides/install.md) describes those that you probably want to set."},
		"charts/space": {"Values of a tenant's chart", "[Create a tenant with\nHelm](../guides/tenant-chart.md) describes those that you probably want to set."},
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: valuesreference VALUES PAGE")
		os.Exit(2)
	} else if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "write the reference of values:", err)
		os.Exit(1)
	}
}

func write(values, page string) error {
	chart := "charts/" + filepath.Base(filepath.Dir(values))
	about, known := pages()[chart]
	if !known {
		return fmt.Errorf("%s: no page is about %s", values, chart)
	}
	text, err := os.ReadFile(values)
	if err != nil {
		return err
	}
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return err
	}
	all, err := list("", file.Content[0])
	if err != nil {
		return err
	}
	out := &bytes.Buffer{}
	fmt.Fprintf(out, head, chart, about.title, about.more)
	for _, v := range all {
		fmt.Fprintf(out, "| [`%s`](#%s) | %s |\n", v.path, anchor(v.path), v.def)
	}
	for _, v := range all {
		fmt.Fprintf(out, "\n## `%s`\n\n", v.path)
		if v.about != "" {
			fmt.Fprintf(out, "%s\n\n", v.about)
		}
		if v.def != "" {
			fmt.Fprintf(out, "Default: %s\n", v.def)
		}
	}
	return os.WriteFile(page, bytes.ReplaceAll(out.Bytes(), []byte("\n\n\n"), []byte("\n\n")), 0o644)
}

// anchor is how Markdown links to a heading of a path.
func anchor(path string) string { return strings.ToLower(strings.ReplaceAll(path, ".", "")) }

// value is one value; its default is Markdown, and empty for a map of other values.
type value struct{ path, def, about string }

// list returns the values of a map, each before those below it.
func list(parent string, node *yaml.Node) (all []value, err error) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, below := node.Content[i], node.Content[i+1]
		v := value{path: strings.TrimPrefix(parent+"."+key.Value, "."), about: about(key.HeadComment)}
		if below.Kind == yaml.MappingNode && len(below.Content) > 0 && v.path != "resources" {
			more, err := list(v.path, below)
			if err != nil {
				return nil, err
			}
			if v.about != "" {
				all = append(all, v)
			}
			all = append(all, more...)
			continue
		}
		clean := *below
		clean.Style |= yaml.FlowStyle
		def, err := yaml.Marshal(&clean)
		if err != nil {
			return nil, err
		}
		v.def = "`" + strings.TrimSpace(string(def)) + "`"
		all = append(all, v)
	}
	return all, nil
}

// about is a comment as Markdown: lines that are indented are an example.
func about(comment string) string {
	if i := strings.LastIndex(comment, "\n\n"); i >= 0 {
		comment = comment[i+2:] // what is about the whole file stands apart
	}
	var out []string
	example := false
	for line := range strings.Lines(comment) {
		line = strings.TrimPrefix(strings.TrimRight(line, "\n"), "#")
		if indented := strings.HasPrefix(line, "   "); indented != example {
			example = indented
			out = append(out, map[bool]string{true: "\n```yaml", false: "```\n"}[example])
		}
		if example {
			out = append(out, strings.TrimPrefix(line, "   "))
		} else {
			out = append(out, strings.TrimPrefix(line, " "))
		}
	}
	if example {
		out = append(out, "```")
	}
	return strings.Join(out, "\n")
}
