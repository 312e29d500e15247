// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantfields

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podList is a list of pods as an API server writes it: with managed fields, environments, and a status.
func podList(tb testing.TB, count int) []byte {
	tb.Helper()
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "77"}}
	managed := `{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{},"f:name":{},"f:resources":{}}}}}`
	for i := range count {
		p := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("web-%d", i), Namespace: fmt.Sprintf("team-%d", i%7), UID: "6f1c0d5e-0000-4000-8000-000000000000", ResourceVersion: "76",
				CreationTimestamp: metav1.NewTime(time.Unix(1.7e9, 0)), Labels: map[string]string{"app": "web", "tier": "front"},
				Annotations:   map[string]string{"note": strings.Repeat(`a "quoted" \ word `, 10)},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Update", APIVersion: "v1", FieldsV1: metav1.NewFieldsV1(managed)}},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "web", Image: "registry.example.com/team/web:1.2.3", Env: []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "C", Value: "d"}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")}},
			}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: "all containers are ready"}}},
		}
		list.Items = append(list.Items, p)
	}
	document, err := json.Marshal(list)
	if err != nil {
		tb.Fatal(err)
	}
	return document
}

// U5: the same, read back by a client.
func TestClientsReadTheFieldsOfLists(t *testing.T) {
	document := podList(t, 50)
	var got, want corev1.PodList
	if err := json.Unmarshal([]byte(inParts(newAdder(apiList, allPods), document, 1000)), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(document, &want); err != nil {
		t.Fatal(err)
	}
	if got.GetSelfLink() != "/api/v1/tenants/solar/pods" {
		t.Errorf("the list is at %q", got.GetSelfLink())
	}
	got.SetSelfLink("")
	for i := range got.Items {
		if p, link := &want.Items[i], got.Items[i].GetSelfLink(); link != "/api/v1/tenants/solar/namespaces/"+p.Namespace+"/pods/"+p.Name {
			t.Errorf("%s is at %q", p.Name, link)
		}
		got.Items[i].SetSelfLink("")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
