// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantaccess

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/berth-dev/berth/api/space/v1alpha1"
)

func toTable(object runtime.Object) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "The name of the object."},
		{Name: "Tenants", Type: "string", Description: "The tenants whose users have the rights."},
		{Name: "Expires", Type: "string", Description: "When the rights end."},
		{Name: "Age", Type: "string", Description: "The age of the object."},
	}}
	switch o := object.(type) {
	case *v1alpha1.TenantAccess:
		table.ResourceVersion = o.ResourceVersion
		table.Rows = append(table.Rows, row(o))
	case *v1alpha1.TenantAccessList:
		table.ResourceVersion, table.Continue, table.RemainingItemCount = o.ResourceVersion, o.Continue, o.RemainingItemCount
		for i := range o.Items {
			table.Rows = append(table.Rows, row(&o.Items[i]))
		}
	}
	return table
}

func row(a *v1alpha1.TenantAccess) metav1.TableRow {
	var tenants []string
	for i := range a.Spec.Subjects {
		tenants = append(tenants, a.Spec.Subjects[i].Tenant)
	}
	slices.Sort(tenants)
	expires, age := "never", "<unknown>"
	if at := a.Spec.ExpirationTime; at != nil {
		expires = at.UTC().Format(time.RFC3339)
		if !at.After(time.Now()) {
			expires = "expired"
		}
	}
	if !a.CreationTimestamp.IsZero() {
		age = duration.HumanDuration(time.Since(a.CreationTimestamp.Time))
	}
	return metav1.TableRow{
		Cells:  []any{a.Name, strings.Join(slices.Compact(tenants), ","), expires, age},
		Object: runtime.RawExtension{Object: a},
	}
}
