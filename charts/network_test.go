// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// S6, B19: the network policies of spaces open Berth's pods, and those let the pods of spaces in.
func TestSpacesNetworkPoliciesSelectBerthsPods(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		objects := render(t, "networkPolicy.enabled=true", "pods.enabled="+map[bool]string{true: "true", false: "false"}[enabled])
		set := find[*appsv1.StatefulSet](t, objects, nil)
		said := map[string]string{}
		for _, arg := range set.Spec.Template.Spec.Containers[0].Args {
			flag, value, _ := strings.Cut(arg, "=")
			said[flag] = value
		}
		if !enabled {
			if said["--pods-namespace"]+said["--pods-selector"] != "" {
				t.Errorf("pods are selected for ports that are not served: %v", said)
			}
			continue
		}
		selected, err := labels.ConvertSelectorToLabelsMap(said["--pods-selector"])
		if err != nil {
			t.Fatal(err)
		}
		own := labels.Set(set.Spec.Template.Labels)
		if said["--pods-namespace"] != set.Namespace || len(selected) == 0 || !labels.SelectorFromSet(selected).Matches(own) {
			t.Errorf("spaces' policies open pods with %v in %q, and Berth's have %v in %q", selected, said["--pods-namespace"], own, set.Namespace)
		}
		policy := find(t, objects, func(p *networkingv1.NetworkPolicy) bool { return p.Name == set.Name })
		lets, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		if err != nil || policy.Namespace != set.Namespace || !lets.Matches(own) {
			t.Errorf("the policy %v is not about Berth's pods (%v)", policy.Spec.PodSelector, err)
		}
	}
}
