// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// Use is what a tenant uses of one resource, as the status of its object says.
type Use struct {
	Tenant, Resource string
	// Used is what the tenant's own spaces use.
	Used resource.Quantity
	// Limit is for Total, or for namespaces for Used. It is nil if there is none.
	Limit *resource.Quantity
	// Total is what the tenant and all tenants below it use.
	Total resource.Quantity
}

// Limited returns what the limit is for.
func (u Use) Limited() resource.Quantity {
	if u.Resource == namespacesResource {
		return u.Used
	}
	return u.Total
}

// Percent returns how much of the limit is used, rounded to a tenth; nil if there is no limit, or if it is 0.
func (u Use) Percent() *float64 {
	if u.Limit == nil || u.Limit.IsZero() {
		return nil
	}
	limited := u.Limited()
	return ptr.To(math.Round(1000*limited.AsApproximateFloat64()/u.Limit.AsApproximateFloat64()) / 10)
}

// namespacesResource stands for the namespaces of spaces, beside the resources of quotas.
const namespacesResource = "namespaces"

// Uses returns what tenants use: namespaces, and then the resources of quotas by name. There is nothing of a tenant that the
// operator hasn't counted yet.
func Uses(tenants []v1alpha1.Tenant) (all []Use) {
	for i := range tenants {
		t := &tenants[i]
		status := &t.Status
		if status.Size == nil {
			continue
		}
		all = append(all, Use{
			Tenant: t.Name, Resource: namespacesResource, Used: *quantityOf(status.Size), Limit: quantityOf(t.Spec.Namespaces.Quota),
			Total: *quantityOf(cmp.Or(status.Subtree.Namespaces, status.Size)),
		})
		names := slices.Collect(maps.Keys(status.Usage.Hard))
		names = slices.AppendSeq(slices.AppendSeq(names, maps.Keys(status.Usage.Used)), maps.Keys(status.Subtree.Used))
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			use := Use{Tenant: t.Name, Resource: string(name), Used: status.Usage.Used[name], Total: status.Subtree.Used[name]}
			if limit, found := status.Usage.Hard[name]; found {
				use.Limit = &limit
			}
			all = append(all, use)
		}
	}
	return all
}

func quantityOf(n *int32) *resource.Quantity {
	if n == nil {
		return nil
	}
	return resource.NewQuantity(int64(*n), resource.DecimalSI)
}

// Usage prints a line for each tenant, with its namespaces, CPU, and memory. Without tenants, it prints nothing.
func Usage(out io.Writer, tenants []v1alpha1.Tenant, headers bool) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	if headers && len(tenants) > 0 {
		fmt.Fprintln(table, "TENANT\tSPACES\tNAMESPACES\tCPU\tMEMORY\tBELOW\tTOTAL CPU\tTOTAL MEMORY")
	}
	for i := range tenants {
		t := &tenants[i]
		uses := map[string]Use{}
		for _, use := range Uses(tenants[i : i+1]) {
			uses[use.Resource] = use
		}
		below := "-"
		if n := t.Status.Subtree.Tenants; n != nil {
			below = strconv.Itoa(int(*n))
		}
		namespaces := "-"
		if use, found := uses[namespacesResource]; found {
			namespaces = use.ofLimit()
		}
		cpu, totalCPU := ofLimit(uses, corev1.ResourceCPU)
		memory, totalMemory := ofLimit(uses, corev1.ResourceMemory)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Name, cmp.Or(t.Status.Summary.Spaces, "-"), namespaces, cpu, memory, below, totalCPU, totalMemory)
	}
	return table.Flush()
}

// ofLimit returns what a tenant uses itself, and TOTAL/LIMIT, of CPU or memory: of limits.RESOURCE, or of requests.RESOURCE if it has no
// limit of that.
func ofLimit(uses map[string]Use, name corev1.ResourceName) (own, total string) {
	limits, limited := uses["limits."+string(name)]
	requests, requested := uses["requests."+string(name)]
	switch {
	case limited && (limits.Limit != nil || requests.Limit == nil):
		return limits.Used.String(), limits.ofLimit()
	case requested:
		return requests.Used.String(), requests.ofLimit()
	default:
		return "-", "-"
	}
}

// ofLimit returns USED/LIMIT, or USED if there is no limit.
func (u Use) ofLimit() string {
	used := u.Limited()
	if u.Limit == nil {
		return used.String()
	}
	return used.String() + "/" + u.Limit.String()
}

// UsageByResource prints a line for each resource of each tenant.
func UsageByResource(out io.Writer, uses []Use, headers bool) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	if headers && len(uses) > 0 {
		fmt.Fprintln(table, "TENANT\tRESOURCE\tUSED\tLIMIT\tPERCENT\tTOTAL")
	}
	for _, use := range uses {
		limit, percent := "-", "-"
		if use.Limit != nil {
			limit = use.Limit.String()
		}
		if p := use.Percent(); p != nil {
			percent = strconv.FormatFloat(*p, 'f', -1, 64) + "%"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", use.Tenant, use.Resource, use.Used.String(), limit, percent, use.Total.String())
	}
	return table.Flush()
}
