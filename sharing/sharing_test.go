// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator/tree"
	"github.com/berth-dev/berth/sharing"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// H8, M3: what would break another space, or open it, is refused with the field.
func TestCheckNamesTheFieldOfWhatCantBeShared(t *testing.T) {
	binding := func(kind, namespace, name, subjects string) string {
		return fmt.Sprintf("{apiVersion: rbac.authorization.k8s.io/v1, kind: %s, metadata: {%s name: %q}, roleRef: {kind: ClusterRole, name: view}, subjects: [%s]}", kind, namespace, name, subjects)
	}
	in := "namespace: web,"
	for text, want := range map[string]string{
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: web, name: a}}":                                                          "",
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: a}}":                                                      "",
		"{apiVersion: v1, kind: Secret, metadata: {namespace: web, name: a}, type: Opaque}":                                               "",
		"{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: web, name: a}}":                                                      "",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}}":                                              "",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {namespace: web, name: admin}}":                                 "",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, aggregationRule: {clusterRoleSelectors: []}}": "aggregationRule",
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: web, name: a.b}}":                                                        "",
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: web, name: A}}":                                                          "metadata.name",
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: web}}":                                                                   "metadata.name",
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: web, name: " + strings.Repeat("a", 254) + "}}":                           "metadata.name",
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: a.b, name: a}}":                                                          "metadata.namespace",
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: " + strings.Repeat("a", 64) + ", name: a}}":                              "metadata.namespace",
		binding("RoleBinding", in, "My:Role", "{kind: User, name: bob}"):                                                                  "",
		binding("RoleBinding", in, "a/b", "{kind: User, name: bob}"):                                                                      "metadata.name",
		binding("RoleBinding", in, "", "{kind: User, name: bob}"):                                                                         "metadata.name",
		binding("RoleBinding", in, strings.Repeat("a", 254), "{kind: User, name: bob}"):                                                   "metadata.name",
		binding("RoleBinding", in, "a", "{kind: User, name: bob}"):                                                                        "",
		binding("RoleBinding", in, "a", "{kind: ServiceAccount, name: default, namespace: web}"):                                          "",
		binding("ClusterRoleBinding", "", "a", "{kind: Group, name: auditors}"):                                                           "",
		binding("RoleBinding", in, "a", "{kind: User, name: bob}, {kind: Group, name: system:unauthenticated}"):                           "subjects[1].name",
		binding("RoleBinding", in, "a", "{kind: Group, name: system:authenticated}"):                                                      "subjects[0].name",
		binding("ClusterRoleBinding", "", "a", "{kind: Group, name: system:masters}"):                                                     "subjects[0].name",
		binding("ClusterRoleBinding", "", "a", "{kind: User, name: system:anonymous}"):                                                    "subjects[0].name",
		binding("ClusterRoleBinding", "", "a", "{kind: Group, name: 'berth:admins'}"):                                                     "subjects[0].name",
		binding("ClusterRoleBinding", "", "a", "{kind: Group, name: 1}"):                                                                  "subjects[0].name",
		binding("ClusterRoleBinding", "", "a", "all"):                                                                                     "subjects[0]",
		binding("ClusterRoleBinding", "", "system:node", "{kind: User, name: bob}"):                                                       "metadata.name",
		binding("RoleBinding", in, "berth-acme-0-admin", "{kind: User, name: bob}"):                                                       "metadata.name",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: admin}}":                                          "metadata.name",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a, labels: {kubernetes.io/bootstrapping: x}}}":    "metadata.name",
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: web, name: kube-root-ca.crt}}":                                           "metadata.name",
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: kube-system, name: a}}":                                                  "metadata.namespace",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}":                                                                          "metadata.namespace",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {namespace: web, name: a}}":                              "metadata.namespace",
		"{apiVersion: v1, kind: Secret, metadata: {namespace: web, name: a}, type: kubernetes.io/service-account-token}":                  "type",
		"{apiVersion: v1, kind: Secret, metadata: {namespace: web, name: a}, type: bootstrap.kubernetes.io/token}":                        "type",
		"{apiVersion: v1, kind: Secret, metadata: {namespace: web, name: a}, type: helm.sh/release.v1}":                                   "type",
		"{apiVersion: v1, kind: Pod, metadata: {namespace: web, name: a}}":                                                                "apiVersion and kind",
		"{apiVersion: v2, kind: ConfigMap, metadata: {namespace: web, name: a}}":                                                          "apiVersion and kind",
		"{}": "apiVersion and kind",
	} {
		err := sharing.Check(object(t, text))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want+":")):
			t.Errorf("%s: %v, want an error that begins with %s", text, err, want)
		}
	}
}

// O3, H8: owners of a tenant above don't pass over the profile that an admin has set, by what they share.
func TestSpacesWithTheProfileNamespaceAdminReceiveOnlyWhatOwnersOfNamespacesWrite(t *testing.T) {
	rbac := "apiVersion: rbac.authorization.k8s.io/v1, kind: "
	for text, want := range map[string]bool{
		"apiVersion: v1, kind: ConfigMap, metadata: {namespace: web, name: a}":                                       false,
		"apiVersion: v1, kind: Secret, metadata: {namespace: web, name: a}":                                          false,
		"apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: web, name: a}":                 false,
		rbac + "RoleBinding, metadata: {namespace: web, name: a}, roleRef: {kind: ClusterRole, name: view}":          false,
		rbac + "RoleBinding, metadata: {namespace: web, name: a}, roleRef: {kind: ClusterRole, name: admin}":         false,
		rbac + "RoleBinding, metadata: {namespace: web, name: a}, roleRef: {kind: ClusterRole, name: cluster-admin}": true,
		rbac + "RoleBinding, metadata: {namespace: web, name: a}, roleRef: {kind: Role, name: view}":                 true,
		rbac + "RoleBinding, metadata: {namespace: web, name: a}, roleRef: view":                                     true,
		rbac + "RoleBinding, metadata: {namespace: default, name: a}, roleRef: {kind: ClusterRole, name: view}":      true,
		rbac + "Role, metadata: {namespace: web, name: a}":                                                           true,
		rbac + "ClusterRole, metadata: {name: a}":                                                                    true,
		rbac + "ClusterRoleBinding, metadata: {name: a}":                                                             true,
		"apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: a}":                                   true,
		"apiVersion: v1, kind: LimitRange, metadata: {namespace: web, name: a}":                                      true,
		"apiVersion: v1, kind: ResourceQuota, metadata: {namespace: web, name: a}":                                   true,
	} {
		if got := sharing.NeedsWholeSpace(object(t, "{"+text+"}")); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	for _, profiles := range [][2]v1alpha1.OwnerProfile{{v1alpha1.SpaceAdmin, v1alpha1.SpaceAdmin}, {v1alpha1.NamespaceAdmin, v1alpha1.SpaceAdmin}, {v1alpha1.SpaceAdmin, v1alpha1.NamespaceAdmin}, {"", ""}} {
		classes := sharing.Received(sharing.Space{Profile: profiles[0], InheritsFrom: []string{"acme"}}, sharing.Space{Tenant: "acme", Profile: profiles[1]})
		whole := slices.ContainsFunc(classes, func(c sharing.Class) bool { return c.WholeSpace })
		if want := profiles[0] == v1alpha1.SpaceAdmin && profiles[1] == v1alpha1.SpaceAdmin; whole != want || len(classes) == 0 {
			t.Errorf("%q receives of %q: %v", profiles[0], profiles[1], classes)
		}
	}
}

// Names are values of labels, and each belongs to one class of one space.
func TestEachClassOfASpaceHasANameOfItsOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spaces := rapid.SliceOfNDistinct(rapid.OneOf(
			rapid.StringMatching(`[a-c]([-a-c]{0,3}[a-c])?`), rapid.StringMatching(`a{40}[a-b]{1,17}`), rapid.SampledFrom([]string{"children", "space", "a-children", "acme"}),
		), 2, 20, rapid.ID[string]).Draw(t, "spaces")
		seen := map[string]string{}
		for _, space := range spaces {
			for _, class := range sharing.Classes() {
				name := sharing.Publication(sharing.Space{Name: space, Depth: 16}, class)
				if len(name) > 63 || !sharing.IsShare(name) {
					t.Fatalf("the name %q", name)
				}
				if other := seen[name]; other != "" {
					t.Fatalf("%s and %s have the name %q", space, other, name)
				}
				seen[name] = space
			}
		}
	})
}

// H5, H8: who receives what is as a walk up the tree says: from each tenant above, until a private one stops it.
func TestWhoReceivesIsAsAWalkUpTheTreeSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(2, 12).Draw(t, "tenants")
		parents, private, tenants := map[string]string{}, map[string]bool{}, &tree.Tree{}
		var names []string
		for i := range count {
			name := fmt.Sprintf("t%d", i)
			if i > 0 && rapid.IntRange(0, 4).Draw(t, "root") > 0 {
				parents[name] = rapid.SampledFrom(names).Draw(t, "parent")
			}
			place := tree.Tenant{Parent: parents[name], Private: rapid.IntRange(0, 3).Draw(t, "private") == 0}
			if tenants.Check(name, place, count) != nil {
				place.Private = false
			}
			private[name] = place.Private
			tenants.Set(name, place)
			names = append(names, name)
		}
		for _, to := range names {
			for _, from := range names {
				want := naive(parents, private, to, from)
				got := sharing.Received(
					sharing.Space{Tenant: to, InheritsFrom: tenants.Bequeathers(to), Profile: v1alpha1.NamespaceAdmin}, sharing.Space{Tenant: from, Profile: v1alpha1.SpaceAdmin})
				var scopes []v1alpha1.ShareScope
				for _, class := range got {
					scopes = append(scopes, class.Scope)
				}
				if diff := cmp.Diff(want, scopes); diff != "" {
					t.Fatalf("%s of %s in %v, private %v: %s", to, from, parents, private, diff)
				}
			}
		}
	})
}

// naive walks from a tenant to those above, a step at a time.
func naive(parents map[string]string, private map[string]bool, to, from string) []v1alpha1.ShareScope {
	for steps := 1; parents[to] != "" && !private[to]; steps++ {
		if to = parents[to]; to == from {
			if steps == 1 {
				return []v1alpha1.ShareScope{v1alpha1.ScopeDescendants, v1alpha1.ScopeChildren}
			}
			return []v1alpha1.ShareScope{v1alpha1.ScopeDescendants}
		}
	}
	return nil
}
