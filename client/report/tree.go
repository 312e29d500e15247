// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// Tree draws tenants below their parents, with what each and the tenants below it use of its quota. A tenant whose parent is not among them is drawn as a root.
// With wide, it has columns for pods and storage.
func Tree(out io.Writer, tenants []v1alpha1.Tenant, style Style, wide bool) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	more := ""
	if wide {
		more = "\tPODS\tSTORAGE"
	}
	fmt.Fprintln(table, "TENANT\tSTATE\tSPACES\tNAMESPACES\tCPU\tMEMORY"+more)
	for _, l := range layOut(tenants, style) {
		t := l.tenant
		name := l.prefix + t.Name
		if ptr.Deref(t.Spec.Private, false) {
			name += " (private)"
		}
		used, hard := t.Status.Subtree.Used, t.Status.Usage.Hard
		if wide {
			more = "\t" + style.first(used, hard, corev1.ResourcePods) + "\t" + style.first(used, hard, corev1.ResourceRequestsStorage)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s%s\n", name, cmp.Or(string(t.Status.State), "Unknown"), cmp.Or(t.Status.Summary.Spaces, "-"),
			style.count(t.Status.Size, t.Spec.Namespaces.Quota), style.compute(used, hard, corev1.ResourceCPU), style.compute(used, hard, corev1.ResourceMemory), more)
	}
	return table.Flush()
}

// InOrder returns tenants in the order in which [Tree] draws them.
func InOrder(tenants []v1alpha1.Tenant) (all []*v1alpha1.Tenant) {
	for _, l := range layOut(tenants, ASCII()) {
		all = append(all, l.tenant)
	}
	return all
}

// line is a tenant in the drawing.
type line struct {
	prefix string
	tenant *v1alpha1.Tenant
}

// layOut orders tenants as they are drawn. Each one is drawn once, even if parents form a cycle, which the operator reports
// and never follows.
func layOut(tenants []v1alpha1.Tenant, style Style) []line {
	children := make(map[string][]*v1alpha1.Tenant, len(tenants))
	known := make(map[string]bool, len(tenants))
	for i := range tenants {
		known[tenants[i].Name] = true
	}
	var all []*v1alpha1.Tenant
	for i := range tenants {
		all = append(all, &tenants[i])
	}
	slices.SortFunc(all, func(a, b *v1alpha1.Tenant) int { return cmp.Compare(a.Name, b.Name) })
	for _, t := range all {
		if parent := t.Spec.Parent; known[parent] {
			children[parent] = append(children[parent], t)
		}
	}
	var lines []line
	drawn := make(map[string]bool, len(tenants))
	var draw func(t *v1alpha1.Tenant, prefix, below string)
	draw = func(t *v1alpha1.Tenant, prefix, below string) {
		if drawn[t.Name] {
			return
		}
		drawn[t.Name] = true
		lines = append(lines, line{prefix, t})
		for i, child := range children[t.Name] {
			if i == len(children[t.Name])-1 {
				draw(child, below+style.last, below+style.none)
			} else {
				draw(child, below+style.branch, below+style.line)
			}
		}
	}
	for _, t := range all {
		if !known[t.Spec.Parent] {
			draw(t, "", "")
		}
	}
	for _, t := range all { // what no root leads to
		draw(t, "", "")
	}
	return lines
}
