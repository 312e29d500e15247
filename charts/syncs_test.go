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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer/declaration"
)

// M4: the rights of ResourceSyncs are added to the chart's ClusterRoles by label, and by nobody else's. Helm writes no rules there, which
// are those of the host's controllers.
func TestTheChartCollectsTheRightsOfResourceSyncs(t *testing.T) {
	toHost := &declaration.Declaration{Name: "notes.example.com", GVR: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "notes"}}
	fromHost := &declaration.Declaration{Name: "pens.example.com", GVR: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "pens"}, FromHost: true}
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
		space, berth := release+isolation.SpaceRoleSuffix, release+"-syncs"
		watch, read := space+isolation.DedicatedSuffix, space+isolation.DedicatedReaderSuffix
		// added returns the names of the roles whose rules are added to another one, by the name of that.
		added := func(roles []client.Object) map[string][]string {
			to := map[string][]string{}
			for _, name := range []string{space, watch, read, berth} {
				for _, role := range roles {
					if collects(name).Matches(labels.Set(role.GetLabels())) {
						to[name] = append(to[name], role.GetName())
					}
				}
			}
			return to
		}
		var own []client.Object
		for _, o := range objects {
			if role, ok := o.(*rbacv1.ClusterRole); ok {
				own = append(own, role)
			}
		}
		if diff := cmp.Diff(map[string][]string{space: {space + "-base"}, watch: {watch + "-base"}, read: {read + "-base"}}, added(own)); diff != "" {
			t.Errorf("the chart itself adds other rights: %s", diff)
		}
		for d, want := range map[*declaration.Declaration]map[string][]string{
			toHost:   {space: {space + "-notes.example.com"}, watch: {watch + "-notes.example.com"}, berth: {berth + "-notes.example.com"}},
			fromHost: {read: {read + "-pens.example.com"}, berth: {berth + "-pens.example.com"}},
		} {
			if diff := cmp.Diff(want, added(isolation.SyncRoles(d, space))); diff != "" {
				t.Errorf("the ResourceSync %s adds other rights: %s", d.Name, diff)
			}
		}
		binding := find(t, objects, func(b *rbacv1.ClusterRoleBinding) bool { return b.Name == release+"-syncs" })
		if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Name: "berth", Namespace: namespace}}, binding.Subjects); diff != "" || binding.RoleRef.Name != binding.Name {
			t.Errorf("%s is bound to %s", binding.RoleRef.Name, diff)
		}
	}
}
