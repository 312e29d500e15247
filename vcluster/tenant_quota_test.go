// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/berth-dev/berth/quota"
	"github.com/berth-dev/berth/vcluster"
)

const pathOfTenantQuotas = "/apis/tenancy.berth.dev/v1alpha1/tenantquotas"

// Q1, H6: a space of a tenant serves the quota of the tenant, which nobody can write, and a space without one doesn't have the API.
func TestASpaceServesTheQuotaOfItsTenant(t *testing.T) {
	c := config(t, "of-tenant")
	amounts := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{"requests.cpu": resource.MustParse(cpu)}
	}
	c.TenantQuota = func(context.Context) (quota.Report, error) {
		return quota.Report{Tenant: "acme", Limit: amounts("8"), Used: amounts("3"), SpaceLimit: amounts("4"), SpaceUsed: amounts("1500m")}, nil
	}
	with, without := start(t, c), start(t, config(t, "of-nobody"))
	groups := func(p *vcluster.ControlPlane) sets.Set[string] {
		all, err := clientset(t, p.Loopback()).Discovery().ServerGroups()
		if err != nil {
			t.Fatal(err)
		}
		names := sets.New[string]()
		for _, group := range all.Groups {
			names.Insert(group.Name)
		}
		return names
	}
	if !groups(with).Has("tenancy.berth.dev") || groups(without).Has("tenancy.berth.dev") {
		t.Errorf("the API is discovered: %v and %v", groups(with).Has("tenancy.berth.dev"), groups(without).Has("tenancy.berth.dev"))
	}
	client := clientset(t, with.Loopback()).RESTClient()
	raw, err := client.Get().AbsPath(pathOfTenantQuotas).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) != 1 || strings.Join(cells(table.Rows[0]), " ") != "acme requests.cpu 1500m 4 3 8" {
		t.Errorf("the table is %s", raw)
	}
	if raw, err := client.Get().AbsPath(pathOfTenantQuotas, "acme").Do(t.Context()).Raw(); err != nil || !strings.Contains(string(raw), `"kind":"TenantQuota","apiVersion":"tenancy.berth.dev/v1alpha1"`) {
		t.Errorf("the object is %s (%v)", raw, err)
	}
	if _, err := client.Get().AbsPath(pathOfTenantQuotas).SetHeader("Accept", "application/vnd.kubernetes.protobuf").Do(t.Context()).Raw(); err == nil {
		t.Error("it has a protobuf form")
	}
	for name, err := range map[string]error{
		"delete": client.Delete().AbsPath(pathOfTenantQuotas, "acme").Do(t.Context()).Error(),
		"patch":  client.Patch("application/merge-patch+json").AbsPath(pathOfTenantQuotas, "acme").Body([]byte(`{"status":null}`)).Do(t.Context()).Error(),
		"apply":  client.Patch("application/apply-patch+yaml").AbsPath(pathOfTenantQuotas, "acme").Param("fieldManager", "a").Body([]byte(`{}`)).Do(t.Context()).Error(),
		"create": client.Post().AbsPath(pathOfTenantQuotas).Body([]byte(`{}`)).Do(t.Context()).Error(),
		"other":  client.Get().AbsPath(pathOfTenantQuotas, "above").Do(t.Context()).Error(),
		"none":   clientset(t, without.Loopback()).RESTClient().Get().AbsPath(pathOfTenantQuotas).Do(t.Context()).Error(),
	} {
		if err == nil {
			t.Errorf("%s succeeds", name)
		}
	}
}

func cells(row metav1.TableRow) (all []string) {
	for _, cell := range row.Cells {
		text, _ := cell.(string)
		all = append(all, text)
	}
	return all
}
