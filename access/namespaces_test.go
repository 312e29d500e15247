// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
)

func metadataOf(n v1alpha1.Namespaces) *access.Rules {
	return access.NewRules(&access.State{Space: "blue", Tenant: "solar", Namespaces: n})
}

// O8: what is set is there, what is no longer set is gone, and what is the tenant's stays.
func TestMetadataOfNamespacesFollowsTheState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SampledFrom([]string{"a", "b", "c"})
		draw := func(name string) map[string]string {
			return rapid.MapOfN(keys, rapid.SampledFrom([]string{"x", "y"}), 0, 3).Draw(t, name)
		}
		own := map[string]string{"own": "value"}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: maps.Clone(own), Annotations: maps.Clone(own)}}
		for range 3 {
			set := v1alpha1.Namespaces{Labels: draw("labels"), Annotations: draw("annotations")}
			rules := metadataOf(set)
			rules.KeepMetadata(namespace)
			if rules.KeepMetadata(namespace) {
				t.Fatal("the second time changes something, too")
			}
			want := maps.Clone(own)
			maps.Copy(want, set.Labels)
			if !maps.Equal(namespace.Labels, want) {
				t.Fatalf("the labels are %v, want %v", namespace.Labels, want)
			}
			for key := range set.Annotations {
				hostile := namespace.DeepCopy()
				delete(hostile.Annotations, key)
				if access.CheckMetadata(namespace, hostile) == nil {
					t.Fatalf("the annotation %s can be removed", key)
				}
			}
			for key := range set.Labels {
				hostile := namespace.DeepCopy()
				hostile.Labels[key] = "other"
				if access.CheckMetadata(namespace, hostile) == nil {
					t.Fatalf("the label %s can be changed", key)
				}
			}
			usual := namespace.DeepCopy()
			delete(usual.Labels, "own")
			if err := access.CheckMetadata(namespace, usual); err != nil {
				t.Fatal(err)
			}
		}
		metadataOf(v1alpha1.Namespaces{}).KeepMetadata(namespace)
		if !maps.Equal(namespace.Labels, own) || !maps.Equal(namespace.Annotations, own) {
			t.Fatalf("labels %v and annotations %v are left", namespace.Labels, namespace.Annotations)
		}
	})
}

func TestNamespacesOfEachSpaceAreLeftAlone(t *testing.T) {
	rules := metadataOf(v1alpha1.Namespaces{Labels: map[string]string{"a": "b"}, Quota: ptr.To[int32](0)})
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		if rules.KeepMetadata(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}) {
			t.Errorf("%s gets labels", name)
		}
		if err := rules.CheckQuota(name, 10); err != nil {
			t.Errorf("%s counts: %v", name, err)
		}
	}
}

// O8
func TestCheckQuota(t *testing.T) {
	rules := metadataOf(v1alpha1.Namespaces{Quota: ptr.To[int32](3)})
	if err := rules.CheckQuota("web", 2); err != nil {
		t.Errorf("the third namespace: %v", err)
	}
	err := rules.CheckQuota("web", 3)
	if err == nil || !strings.HasPrefix(err.Error(), "exceeded quota: tenant solar, requested: namespaces=1, used: namespaces=3, limited: namespaces=3; delete a namespace") {
		t.Errorf("the fourth namespace: %v", err)
	}
	if err := metadataOf(v1alpha1.Namespaces{}).CheckQuota("web", 1000); err != nil {
		t.Errorf("without a quota: %v", err)
	}
}

// O8
func TestPoliciesAreNumbered(t *testing.T) {
	rules := metadataOf(v1alpha1.Namespaces{LimitRanges: make([]corev1.LimitRangeSpec, 2), NetworkPolicies: make([]networkingv1.NetworkPolicySpec, 1)})
	ranges, policies := rules.LimitRanges(), rules.NetworkPolicies()
	if len(ranges) != 2 || ranges[1].Name != "berth-solar-1" || ranges[1].Labels[access.LabelTenant] != "solar" {
		t.Errorf("limit ranges: %+v", ranges)
	}
	if len(policies) != 1 || policies[0].Name != "berth-solar-0" || policies[0].Labels[access.LabelTenant] != "solar" {
		t.Errorf("network policies: %+v", policies)
	}
}
