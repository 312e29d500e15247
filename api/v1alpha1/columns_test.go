// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// running creates a space whose status says that it runs, dedicated.
func running(t *testing.T, c client.Client, name string) {
	t.Helper()
	t.Cleanup(func() { remove(t, c, &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}}) })
	space := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SpaceSpec{Isolation: v1alpha1.Dedicated}}
	if err := c.Create(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	space.Status = v1alpha1.SpaceStatus{
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: string(v1alpha1.SpaceRunning),
			Message: "the space serves requests and syncs", LastTransitionTime: metav1.Now(),
		}},
		ObservedGeneration: 1, State: v1alpha1.SpaceRunning, Endpoint: "https://berth.example:7443/spaces/" + name, Version: "v1.37.1",
		Quota: v1alpha1.QuotaStatus{
			Hard: map[corev1.ResourceName]resource.Quantity{"limits.cpu": resource.MustParse("8"), "pods": resource.MustParse("100")},
			Used: map[corev1.ResourceName]resource.Quantity{"limits.cpu": resource.MustParse("500m"), "pods": resource.MustParse("3")},
		},
		Usage:     v1alpha1.Usage{CPU: "500m/8", Memory: "1Gi/16Gi"},
		Isolation: v1alpha1.Dedicated,
	}
	if err := c.Status().Update(t.Context(), space); err != nil {
		t.Fatal(err)
	}
}

// X3: `kubectl get spaces` shows whether a space is ready, what it does and uses, and how old it is; -o wide shows more.
func TestKubectlShowsTheColumnsOfASpace(t *testing.T) {
	c := hostClient(t)
	running(t, c, "columns")
	kube, err := discovery.NewDiscoveryClientForConfig(hostConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	content, err := kube.RESTClient().Get().AbsPath("/apis/berth.dev/v1alpha1/spaces/columns").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(content, &table); err != nil {
		t.Fatal(err)
	}
	var usual, wide []string
	for i, column := range table.ColumnDefinitions {
		text := fmt.Sprintf("%s: %v", column.Name, table.Rows[0].Cells[i])
		switch {
		case column.Name == "Age":
			usual = append(usual, "Age")
		case column.Priority == 0:
			usual = append(usual, text)
		default:
			wide = append(wide, text)
		}
	}
	if diff := cmp.Diff([]string{"Name: columns", "Ready: True", "State: Running", "CPU: 500m/8", "Memory: 1Gi/16Gi", "Age"}, usual); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"Tenant: <nil>", "Isolation: Dedicated", "Store: <nil>", "Platform: berth", "Paused: <nil>", "Shard: <nil>", "Version: v1.37.1", "Endpoint: https://berth.example:7443/spaces/columns",
		"Message: the space serves requests and syncs",
	}, wide); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	resources, err := kube.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool {
		return r.Name == "spaces" && !r.Namespaced && slices.Equal(r.Categories, []string{"berth"})
	}) {
		t.Errorf("kubectl get berth does not find spaces: %+v", resources.APIResources)
	}
}

// X3: `kubectl get spaces --field-selector` finds spaces by what they do and by their isolation.
func TestSpacesAreSelectedByStateAndIsolation(t *testing.T) {
	c := hostClient(t)
	running(t, c, "selected")
	if err := c.Create(t.Context(), &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "not-selected"}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, c, &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "not-selected"}}) })
	for _, fields := range []client.MatchingFields{
		{"status.state": "Running"}, {"spec.isolation": "Dedicated", "status.state": "Running"},
	} {
		var spaces v1alpha1.SpaceList
		if err := c.List(t.Context(), &spaces, fields); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, space := range spaces.Items {
			names = append(names, space.Name)
		}
		if !slices.Equal(names, []string{"selected"}) {
			t.Errorf("%v selects %q", fields, names)
		}
	}
}
