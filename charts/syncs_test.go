// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer/declaration"
)

// M4: the rights of ResourceSyncs are added to the chart's ClusterRoles by label, and by nobody else's. Helm writes no rules there, which
// are those of the host's controllers.
func TestTheChartCollectsTheRightsOfResourceSyncs(t *testing.T) {
	d := &declaration.Declaration{Name: "notes.example.com", GVR: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "notes"}}
	for _, namespace := range []string{"platform", strings.Repeat("n", validation.DNS1123LabelMaxLength)} {
		release := namespace + "-berth"
		objects := renderIn(t, namespace)
		collects := func(name string) labels.Selector {
			role := find(t, objects, func(r *rbacv1.ClusterRole) bool { return r.Name == name })
			if role.AggregationRule == nil || len(role.AggregationRule.ClusterRoleSelectors) != 1 || len(role.Rules) > 0 {
				t.Fatalf("%s: collects by %v, and has the rules %v", name, role.AggregationRule, role.Rules)
			}
			selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[0])
			if err != nil {
				t.Fatal(err)
			}
			return selector
		}
		spaces := collects(release + isolation.SpaceRoleSuffix)
		watches := collects(release + "-syncs")
		var toSpaces, toBerth []string
		for _, o := range objects {
			if role, ok := o.(*rbacv1.ClusterRole); ok {
				if spaces.Matches(labels.Set(role.Labels)) {
					toSpaces = append(toSpaces, role.Name)
				}
				if watches.Matches(labels.Set(role.Labels)) {
					toBerth = append(toBerth, role.Name)
				}
			}
		}
		if diff := cmp.Diff([]string{release + "-space-base"}, toSpaces); diff != "" || len(toBerth) > 0 {
			t.Errorf("the chart itself gives Berth %v, and spaces' accounts: %s", toBerth, diff)
		}
		for _, role := range isolation.SyncRoles(d, release+isolation.SpaceRoleSuffix) {
			to, watch := spaces.Matches(labels.Set(role.GetLabels())), watches.Matches(labels.Set(role.GetLabels()))
			if want := role.GetName() == release+"-syncs-notes.example.com"; watch != want || to == want {
				t.Errorf("%s is added to the rights of spaces' accounts: %t, and of Berth: %t", role.GetName(), to, watch)
			}
		}
		binding := find(t, objects, func(b *rbacv1.ClusterRoleBinding) bool { return b.Name == release+"-syncs" })
		if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Name: "berth", Namespace: namespace}}, binding.Subjects); diff != "" || binding.RoleRef.Name != binding.Name {
			t.Errorf("%s is bound to %s", binding.RoleRef.Name, diff)
		}
	}
}
