// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storekeys

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// U7: the keys are those of Alkaid's examples.
func TestKeysAreThoseOfTheSharedStore(t *testing.T) {
	for want, at := range map[string][5]string{
		"/registry/namespaces/system/kube-public":                                     {"", "namespaces", "system", "", "kube-public"},
		"/registry/serviceaccounts/system/kube-system/job-controller":                 {"", "serviceaccounts", "system", "kube-system", "job-controller"},
		"/registry/deployments/acme/web/front":                                        {"apps", "deployments", "acme", "web", "front"},
		"/registry/clusterroles/acme/admin":                                           {"rbac.authorization.k8s.io", "clusterroles", "acme", "", "admin"},
		"/registry/apiregistration.k8s.io/apiservices/acme/v1beta1.node.k8s.io":       {"apiregistration.k8s.io", "apiservices", "acme", "", "v1beta1.node.k8s.io"},
		"/registry/cert-manager.io/certificates/acme/web/front":                       {"cert-manager.io", "certificates", "acme", "web", "front"},
		"/registry/apiextensions.k8s.io/customresourcedefinitions/acme/a.example.com": {"apiextensions.k8s.io", "customresourcedefinitions", "acme", "", "a.example.com"},
	} {
		if got := Key(at[0], at[1], at[2], at[3], at[4]); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// U7: what is not in the store has no key.
func TestResourcesThatAreNotStoredAreLeftOut(t *testing.T) {
	list := metav1.Verbs{"list", "get"}
	all := []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods", Verbs: list}, {Name: "pods/log", Verbs: list}, {Name: "componentstatuses", Verbs: list}, {Name: "bindings", Verbs: metav1.Verbs{"create"}},
			{Name: "events", Verbs: list},
		}},
		{GroupVersion: "events.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "events", Verbs: list}}},
		{GroupVersion: "metrics.k8s.io/v1beta1", APIResources: []metav1.APIResource{{Name: "pods", Verbs: list}}},
		{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{{Name: "deployments", Verbs: list}}},
	}
	for named, want := range map[string]string{
		"": "deployments.apps events pods", "pods": "pods", "deployments.apps": "deployments.apps", "pods events": "events pods",
	} {
		chosen, err := choose(all, strings.Fields(named))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, resource := range chosen {
			got = append(got, resource.GroupResource().String())
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%q: -want +got:\n%s", named, diff)
		}
	}
	if _, err := choose(all, []string{"pod"}); err == nil || !strings.Contains(err.Error(), `"pod"`) {
		t.Errorf("a resource that isn't there: %v", err)
	}
}
