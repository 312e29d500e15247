// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/progress"
	"github.com/berth-dev/berth/client/report"
)

const (
	formatTable, formatWide = "table", "wide"
	formatName              = "name"
	formatCSV               = "csv"
	formatJSON, formatYAML  = "json", "yaml"
	formatJSONPath          = "jsonpath="
)

// formats returns those that are offered; a template follows the last one.
func formats() []string {
	return []string{formatTable, formatWide, formatName, formatCSV, formatJSON, formatYAML, formatJSONPath}
}

// record is what a tenant uses of one resource, for programs. The figures are cores, bytes, or counts.
type record struct {
	Tenant   string   `json:"tenant"`
	Resource string   `json:"resource"`
	Used     float64  `json:"used"`
	Limit    *float64 `json:"limit,omitempty"`
	Percent  *float64 `json:"percent,omitempty"`
	Total    float64  `json:"total"`
}

func records(tenants []v1alpha1.Tenant) []record {
	all := []record{}
	for _, use := range report.Uses(tenants) {
		one := record{Tenant: use.Tenant, Resource: use.Resource, Used: use.Used.AsApproximateFloat64(), Percent: use.Percent(), Total: use.Total.AsApproximateFloat64()}
		if use.Limit != nil {
			limit := use.Limit.AsApproximateFloat64()
			one.Limit = &limit
		}
		all = append(all, one)
	}
	return all
}

// printer prints the usage of tenants.
type printer func(out io.Writer, tenants []v1alpha1.Tenant) error

// printerOf returns the printer of a format.
func printerOf(format string, noHeaders bool) (printer, error) {
	if template, ok := strings.CutPrefix(format, formatJSONPath); ok {
		show, err := jsonPathPrinter[[]record](template)
		if err != nil {
			return nil, err
		}
		return func(out io.Writer, tenants []v1alpha1.Tenant) error { return show(out, records(tenants)) }, nil
	}
	switch format {
	case "", formatTable:
		return func(out io.Writer, tenants []v1alpha1.Tenant) error { return report.Usage(out, tenants, !noHeaders) }, nil
	case formatWide:
		return func(out io.Writer, tenants []v1alpha1.Tenant) error {
			return report.UsageByResource(out, report.Uses(tenants), !noHeaders)
		}, nil
	case formatName:
		return printNames, nil
	case formatCSV:
		return func(out io.Writer, tenants []v1alpha1.Tenant) error {
			return printCSV(out, records(tenants), !noHeaders)
		}, nil
	case formatJSON:
		return func(out io.Writer, tenants []v1alpha1.Tenant) error { return printJSON(out, records(tenants)) }, nil
	case formatYAML:
		return func(out io.Writer, tenants []v1alpha1.Tenant) error { return printYAML(out, records(tenants)) }, nil
	default:
		return nil, fmt.Errorf("--output=%s: must be one of %s, and a template after the last one", format, strings.Join(formats(), ", "))
	}
}

func printNames(out io.Writer, tenants []v1alpha1.Tenant) error {
	for i := range tenants {
		if _, err := fmt.Fprintln(out, progress.Name(&tenants[i])); err != nil {
			return err
		}
	}
	return nil
}

func printCSV(out io.Writer, records []record, headers bool) error {
	lines := [][]string{}
	if headers {
		lines = append(lines, []string{"tenant", "resource", "used", "limit", "percent", "total"})
	}
	for _, r := range records {
		lines = append(lines, []string{r.Tenant, r.Resource, number(&r.Used), number(r.Limit), number(r.Percent), number(&r.Total)})
	}
	return csv.NewWriter(out).WriteAll(lines)
}

// number writes a number without an exponent, which some spreadsheets don't read.
func number(n *float64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatFloat(*n, 'f', -1, 64)
}

func printJSON(out io.Writer, list any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "    ")
	return encoder.Encode(list)
}

// jsonPathPrinter returns the printer of a template, whose root is the list that the format json prints.
func jsonPathPrinter[List any](template string) (func(io.Writer, List) error, error) {
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return nil, fmt.Errorf("--output=%s%s: %w", formatJSONPath, template, err)
	}
	return func(out io.Writer, list List) error {
		text, err := json.Marshal(list)
		if err != nil {
			return fmt.Errorf("print as JSON: %w", err)
		}
		var root any
		if err := json.Unmarshal(text, &root); err != nil {
			return fmt.Errorf("print as JSON: %w", err)
		}
		return path.Execute(out, root)
	}, nil
}

func printYAML(out io.Writer, list any) error {
	text, err := yaml.Marshal(list)
	if err != nil {
		return fmt.Errorf("print as YAML: %w", err)
	}
	_, err = out.Write(text)
	return err
}
