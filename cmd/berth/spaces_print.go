// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/shard"
)

// spacePrinter prints spaces as kubectl prints objects.
type spacePrinter struct {
	flags   *genericclioptions.PrintFlags
	output  string
	headers bool
	printer printers.ResourcePrinter // nil for a table
}

func (p *spacePrinter) addFlags(cmd *cobra.Command) {
	p.flags = genericclioptions.NewPrintFlags("")
	var noHeaders bool
	p.flags.OutputFormat = &p.output
	p.flags.AddFlags(cmd)
	cmd.Flags().BoolVar(&noHeaders, "no-headers", false, "don't print column headers")
	cmd.Flags().Lookup("output").Usage = "wide, name, json, yaml, jsonpath=..., or go-template=... (default: a table)"
	cmd.PreRun = func(*cobra.Command, []string) { p.headers = !noHeaders }
}

func (p *spacePrinter) complete() (err error) {
	if p.output == "" || p.output == "wide" {
		return nil
	}
	p.printer, err = p.flags.ToPrinter()
	return err
}

func (p *spacePrinter) one(out io.Writer, space shard.Status) error {
	if p.printer == nil {
		return p.table(out, []shard.Status{space})
	}
	object, err := objectOf(space)
	if err != nil {
		return err
	}
	return p.printer.PrintObj(object, out)
}

func (p *spacePrinter) list(out, hints io.Writer, spaces []shard.Status) error {
	if p.printer == nil && len(spaces) == 0 {
		fmt.Fprintln(hints, "No spaces found.")
		return nil
	}
	if p.printer == nil {
		return p.table(out, spaces)
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}}}
	for _, space := range spaces {
		object, err := objectOf(space)
		if err != nil {
			return err
		}
		list.Items = append(list.Items, *object)
	}
	if p.output != "name" {
		return p.printer.PrintObj(list, out)
	}
	for _, object := range list.Items {
		if err := p.printer.PrintObj(&object, out); err != nil {
			return err
		}
	}
	return nil
}

// objectOf converts a status to an object for printers.
func objectOf(space shard.Status) (*unstructured.Unstructured, error) {
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&space)
	if err != nil {
		return nil, fmt.Errorf("print space %s: %w", space.Name, err)
	}
	delete(status, "name")
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Space", "metadata": map[string]any{"name": space.Name}, "status": status,
	}}, nil
}

func (p *spacePrinter) table(out io.Writer, spaces []shard.Status) error {
	const onlyWide = 1
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string"},
		{Name: "Ready", Type: "string"},
		{Name: "State", Type: "string"},
		{Name: "Since", Type: "string"},
		{Name: "Idle", Type: "string"},
		{Name: "Requests", Type: "integer", Priority: onlyWide},
		{Name: "Next Wake", Type: "string", Priority: onlyWide},
		{Name: "Message", Type: "string"},
	}}
	for _, space := range spaces {
		ready := meta.FindStatusCondition(space.Conditions, v1alpha1.ConditionReady)
		if ready == nil {
			ready = &metav1.Condition{Status: metav1.ConditionUnknown}
		}
		idle := ago(space.LastRequest)
		if space.Requests > 0 {
			idle = "in use"
		}
		message := ""
		if ready.Status == metav1.ConditionFalse || p.output == "wide" {
			message = strings.ReplaceAll(ready.Message, "\n", "; ")
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{
			space.Name, string(ready.Status), ready.Reason, ago(&ready.LastTransitionTime), idle, space.Requests, until(space.NextWake), message,
		}})
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: p.output == "wide", NoHeaders: !p.headers}).PrintObj(table, out)
}

func ago(t *metav1.Time) string {
	if t.IsZero() {
		return "<none>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

func until(t *metav1.Time) string {
	if t.IsZero() {
		return "<none>"
	}
	return duration.HumanDuration(max(0, time.Until(t.Time)))
}
