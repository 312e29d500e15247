// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package listing

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"
)

// Get is one use of a get command.
type Get struct {
	Query
	// Printer prints whole objects. If it is nil, a table is printed.
	Printer printers.ResourcePrinter
	// Each says that the printer takes one object at a time, and no lists.
	Each bool
	// Wide and NoHeaders are about the table.
	Wide, NoHeaders bool
	// First is a column to print before all others, also if only wide tables have it.
	First string
	// Watch prints changes until the context ends.
	Watch bool
	// Out is where objects are printed, and Hints where is printed that there are none.
	Out, Hints io.Writer
}

// Run reads the objects from the host and prints them.
func (g *Get) Run(ctx context.Context, api rest.Interface) error {
	r := &reader{api, g.Query, g.Printer == nil}
	version := ""
	if g.Watch && len(g.Names) > 0 {
		if len(g.Names) == 1 {
			r.query.Fields = "metadata.name=" + g.Names[0]
		}
		var err error
		if version, err = r.now(ctx); err != nil {
			return err
		}
	}
	if g.Printer == nil {
		return g.tables(ctx, r, version)
	}
	return g.objects(ctx, r, version)
}

// tables prints tables. Changes are those since a version, or since the list if there is none.
func (g *Get) tables(ctx context.Context, r *reader, version string) error {
	all := &metav1.Table{}
	failed := r.read(ctx, func(answer []byte) error {
		var table metav1.Table
		if err := json.Unmarshal(answer, &table); err != nil {
			return fmt.Errorf("read a table of %s: %w", g.Resource, err)
		}
		if len(all.ColumnDefinitions) == 0 {
			all.ColumnDefinitions = table.ColumnDefinitions
		}
		all.ResourceVersion = table.ResourceVersion
		all.Rows = append(all.Rows, table.Rows...)
		return nil
	})
	columns := all.ColumnDefinitions
	table := printers.NewTablePrinter(printers.PrintOptions{Wide: g.Wide, NoHeaders: g.NoHeaders})
	switch {
	case len(all.Rows) > 0:
		if err := table.PrintObj(moveFirst(all, g.First), g.Out); err != nil {
			return err
		}
	case failed == nil && !g.Watch:
		fmt.Fprintln(g.Hints, "No resources found")
	}
	if failed != nil || !g.Watch {
		return failed
	}
	return r.watch(ctx, cmp.Or(version, all.ResourceVersion), func(object []byte) error {
		var change metav1.Table
		if err := json.Unmarshal(object, &change); err != nil {
			return fmt.Errorf("read a table of %s: %w", g.Resource, err)
		}
		if change.ColumnDefinitions == nil {
			change.ColumnDefinitions = columns // only the first table of a watch has them
		}
		columns = change.ColumnDefinitions
		change.Rows = slices.DeleteFunc(change.Rows, func(row metav1.TableRow) bool { return !g.wants(row.Object.Raw) })
		if len(change.Rows) == 0 {
			return nil
		}
		return table.PrintObj(moveFirst(&change, g.First), g.Out)
	})
}

// objects prints whole objects, and changes as tables does.
func (g *Get) objects(ctx context.Context, r *reader, version string) error {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}}}
	listed := ""
	failed := r.read(ctx, func(answer []byte) error {
		object, err := runtimeObject(answer)
		if err != nil {
			return err
		}
		listed = object.GetResourceVersion()
		if !object.IsList() {
			list.Items = append(list.Items, *object)
			return nil
		}
		page := &unstructured.UnstructuredList{}
		if err := page.UnmarshalJSON(answer); err != nil { // it gives the objects the kind, which servers leave out in lists
			return fmt.Errorf("read a list: %w", err)
		}
		list.Items = append(list.Items, page.Items...)
		return nil
	})
	if err := g.print(list); err != nil {
		return err
	}
	if failed != nil || !g.Watch {
		return failed
	}
	return r.watch(ctx, cmp.Or(version, listed), func(object []byte) error {
		changed, err := runtimeObject(object)
		if err != nil || !g.wants(object) {
			return err
		}
		return g.Printer.PrintObj(changed, g.Out)
	})
}

// print prints a list as kubectl does: the object itself if one name is asked for.
func (g *Get) print(list *unstructured.UnstructuredList) error {
	if !g.Each && !g.Watch && len(g.Names) != 1 {
		return g.Printer.PrintObj(list, g.Out)
	}
	for i := range list.Items {
		if err := g.Printer.PrintObj(&list.Items[i], g.Out); err != nil {
			return err
		}
	}
	return nil
}

// wants reports whether an object that changed is one of those that were asked for.
func (g *Get) wants(object []byte) bool {
	var partial metav1.PartialObjectMetadata
	return len(g.Names) == 0 || json.Unmarshal(object, &partial) == nil && slices.Contains(g.Names, partial.Name)
}

func runtimeObject(data []byte) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	return object, nil
}

// moveFirst returns the table with a column before all others.
func moveFirst(table *metav1.Table, column string) *metav1.Table {
	at := slices.IndexFunc(table.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Name == column })
	if at < 0 {
		return table
	}
	moved := table.DeepCopy()
	moved.ColumnDefinitions[at].Priority = 0
	moved.ColumnDefinitions = toFront(moved.ColumnDefinitions, at)
	for i, row := range moved.Rows {
		if at < len(row.Cells) {
			moved.Rows[i].Cells = toFront(row.Cells, at)
		}
	}
	return moved
}

func toFront[T any](list []T, at int) []T {
	return slices.Concat(list[at:at+1], list[:at], list[at+1:])
}
