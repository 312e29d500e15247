// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// solar is a tenant with everything.
var solar = []string{
	"owners.alice.kind=User", "owners.oidc:devops.kind=Group", "owners.oidc:devops.clusterRoles={admin}", "owners.oidc:devops.labels.team=devops", "owners.oidc:devops.annotations.contact=ops",
	"matchOwners[0].matchLabels.team=solar", "ownerProfile=NamespaceAdmin", "parent=acme", "private=true", "deletionPropagation=Subtree", "cordoned=true",
	"additionalRoleBindings[0].clusterRoleName=view", "additionalRoleBindings[0].subjects[0].kind=Group", "additionalRoleBindings[0].subjects[0].apiGroup=rbac.authorization.k8s.io", "additionalRoleBindings[0].subjects[0].name=auditors",
	"quota.pods=100", "limitRange[0].type=Pod", "limitRange[0].max.cpu=4", "namespaceQuota=3", "namespaces.labels.team=solar",
	"namespaces.limitRanges[0].limits[0].type=Container", "namespaces.limitRanges[0].limits[0].default.memory=256Mi", "namespaces.networkPolicies[0].policyTypes={Ingress}", "namespaces.networkPolicies[0].podSelector.matchLabels.a=b",
	"hostNamespaces.labels.cost-center=x42", "nodes.selector.pool=solar", "nodes.tolerations[0].key=tenant", "nodes.tolerations[0].effect=NoSchedule", "priority.allowedClasses={high}", "priority.defaultClass=low", "space.isolation=Dedicated", "space.deletionPolicy=Retain", "space.platformName=other", "space.limits.watches=4000", "spaces.solar-staging.quota.pods=4",
	"publications.rules.sources[0].apiVersion=v1", "publications.rules.sources[0].kind=ConfigMap", "publications.rules.sources[0].namespace=shared", "publications.rules.namespaces=Every",
	"commonLabels.billing=a", "commonAnnotations.contact=ops", "extraObjects[0].apiVersion=v1", "extraObjects[0].kind=ConfigMap", "extraObjects[0].metadata.name=extra-{{ .Release.Name }}",
}

func renderTenant(t *testing.T, release string, values ...string) []runtime.Object {
	t.Helper()
	return renderChart(t, release, "space", "tenants", values...)
}

// X1, T1: the values are a Tenant and the Spaces of it, so that the operator has none to make, and none is another's.
func TestTheSpaceChartRendersATenant(t *testing.T) {
	objects := renderTenant(t, "solar", solar...)
	tenant := find[*v1alpha1.Tenant](t, objects, nil)
	want := v1alpha1.TenantSpec{
		Owners: []v1alpha1.Owner{
			{Kind: v1alpha1.UserKind, Name: "alice"},
			{Kind: v1alpha1.GroupKind, Name: "oidc:devops", ClusterRoles: []string{"admin"}, Labels: map[string]string{"team": "devops"}, Annotations: map[string]string{"contact": "ops"}},
		},
		Permissions:  v1alpha1.Permissions{MatchOwners: []metav1.LabelSelector{{MatchLabels: map[string]string{"team": "solar"}}}},
		OwnerProfile: v1alpha1.NamespaceAdmin, Parent: "acme", Private: ptr.To(true), DeletionPropagation: v1alpha1.DeleteSubtree, Cordoned: ptr.To(true),
		AdditionalRoleBindings: []v1alpha1.AdditionalRoleBinding{{ClusterRoleName: "view", Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "auditors"}}}},
		Quota:                  quantities("pods", "100"), LimitRange: []corev1.LimitRangeItem{{Type: corev1.LimitTypePod, Max: quantities("cpu", "4")}},
		Namespaces: v1alpha1.Namespaces{
			Quota: ptr.To(int32(3)), Labels: map[string]string{"team": "solar"},
			LimitRanges:     []corev1.LimitRangeSpec{{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Default: quantities("memory", "256Mi")}}}},
			NetworkPolicies: []networkingv1.NetworkPolicySpec{{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, PolicyTypes: []networkingv1.PolicyType{"Ingress"}}},
		},
		HostNamespaces: v1alpha1.HostNamespace{Labels: map[string]string{"cost-center": "x42"}},
		Nodes:          v1alpha1.Nodes{Selector: map[string]string{"pool": "solar"}, Tolerations: []v1alpha1.Toleration{{Key: "tenant", Effect: corev1.TaintEffectNoSchedule}}},
		Priority:       v1alpha1.Priority{PriorityClasses: v1alpha1.PriorityClasses{AllowedClasses: []string{"high"}, DefaultClass: "low"}},
		Space:          v1alpha1.TenantSpace{PlatformName: "other", Isolation: v1alpha1.Dedicated, DeletionPolicy: v1alpha1.DeletionRetain},
	}
	if diff := cmp.Diff(want, tenant.Spec); diff != "" || tenant.Name != "solar" {
		t.Errorf("tenant %s: -want +got:\n%s", tenant.Name, diff)
	}
	spaces := map[string]v1alpha1.SpaceSpec{}
	for _, o := range objects {
		if space, ok := o.(*v1alpha1.Space); ok {
			spaces[space.Name] = space.Spec
			if space.Annotations["helm.sh/resource-policy"] != "keep" {
				t.Errorf("Helm deletes the space %s even if the tenant must not be deleted", space.Name)
			}
		}
	}
	wantSpaces := map[string]v1alpha1.SpaceSpec{
		"solar":         {TenantName: "solar", PlatformName: "other", Isolation: v1alpha1.Dedicated, DeletionPolicy: v1alpha1.DeletionRetain, Limits: quantitiesOf("watches", "4000")},
		"solar-staging": {TenantName: "solar", PlatformName: "other", Quota: quantities("pods", "4")},
	}
	if diff := cmp.Diff(wantSpaces, spaces); diff != "" {
		t.Errorf("spaces: -want +got:\n%s", diff)
	}
	if tenant.Annotations["helm.sh/resource-policy"] != "" {
		t.Error("the tenant stays when the release goes")
	}
	publication := find[*v1alpha1.Publication](t, objects, nil)
	selector, err := metav1.LabelSelectorAsSelector(publication.Spec.Tenants)
	if err != nil || selector.Empty() || !selector.Matches(labels.Set(tenant.Labels)) {
		t.Errorf("%s is for %v (%v), the tenant has %v", publication.Name, publication.Spec.Tenants, err, tenant.Labels)
	}
	if another := find[*v1alpha1.Tenant](t, renderTenant(t, "solar", "nameOverride=lunar"), nil); selector.Matches(labels.Set(another.Labels)) {
		t.Errorf("a publication of solar reaches the tenant %s", another.Name)
	}
	for _, o := range objects {
		m := o.(metav1.Object)
		if extra := strings.HasPrefix(m.GetName(), "extra-"); !extra && (m.GetLabels()["billing"] != "a" || m.GetAnnotations()["contact"] != "ops") {
			t.Errorf("%T %s has the labels %v and the annotations %v", o, m.GetName(), m.GetLabels(), m.GetAnnotations())
		}
	}
	find(t, objects, func(c *corev1.ConfigMap) bool { return c.Name == "extra-solar" })
}

func quantitiesOf(name, quantity string) map[string]resource.Quantity {
	return map[string]resource.Quantity{name: quantities(corev1.ResourceName(name), quantity)[corev1.ResourceName(name)]}
}

// X1: the command of the README is enough; owners may be a list, and zero is a quota.
func TestATenantNeedsLittle(t *testing.T) {
	objects := renderTenant(t, "solar", "owners.alice.kind=User")
	want := v1alpha1.TenantSpec{DeletionPropagation: v1alpha1.RefuseDeletion, Owners: []v1alpha1.Owner{{Kind: v1alpha1.UserKind, Name: "alice"}}}
	if diff := cmp.Diff(want, find[*v1alpha1.Tenant](t, objects, nil).Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if space := find[*v1alpha1.Space](t, objects, nil); space.Name != "solar" || !cmp.Equal(space.Spec, v1alpha1.SpaceSpec{TenantName: "solar"}) {
		t.Errorf("the space %s is %+v", space.Name, space.Spec)
	}
	listed := find[*v1alpha1.Tenant](t, renderTenant(t, "solar", "owners[0].kind=User", "owners[0].name=alice", "namespaceQuota=0"), nil).Spec
	if quota := listed.Namespaces.Quota; len(listed.Owners) != 1 || listed.Owners[0].Name != "alice" || quota == nil || *quota != 0 {
		t.Errorf("the tenant is %+v", listed)
	}
}

// X1: `helm test` checks in Berth's namespace that the space answers, under the strictest Pod Security level.
func TestTheSpaceChartsTestRunsBesideBerth(t *testing.T) {
	test := find[*corev1.Pod](t, renderTenant(t, "solar", "test.namespace=platform", "test.image.repository=registry.example/berth", "test.image.tag=7", "test.imagePullSecrets[0].name=registry"), nil)
	c := test.Spec.Containers[0]
	if test.Namespace != "platform" || c.Image != "registry.example/berth:7" || !slices.Contains(c.Args, "check") || test.Spec.ImagePullSecrets[0].Name != "registry" ||
		test.Spec.Volumes[0].Projected.Sources[0].Secret.Name != "solar-kubeconfig" || test.Annotations["helm.sh/hook"] != "test" {
		t.Errorf("the test is %+v", test)
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range evaluator.EvaluatePod(podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}, &test.ObjectMeta, &test.Spec) {
		if !result.Allowed {
			t.Errorf("%s: %s", result.ForbiddenReason, result.ForbiddenDetail)
		}
	}
	for _, o := range renderTenant(t, "solar", "test.enabled=false") {
		if _, made := o.(*corev1.Pod); made {
			t.Error("there is a test all the same")
		}
	}
}

// X1: a value that means nothing is refused before anything is made, and the message names it.
func TestBadValuesOfATenantAreRefusedByName(t *testing.T) {
	for name, test := range map[string]struct {
		release string
		set     string
		says    string
	}{
		"unknown":          {"solar", "owner.alice.kind=User", "owner"},
		"no kind":          {"solar", "owners.alice.labels.a=b", "/owners/alice"},
		"no such kind":     {"solar", "owners.alice.kind=Team", "/owners/alice/kind"},
		"no name":          {"solar", "owners[0].kind=User", "/owners/0"},
		"no such field":    {"solar", "space.limit.watches=1", "limit"},
		"no such limit":    {"solar", "space.limits.watch=1", "'watch'"},
		"the operator's":   {"solar", "space.tenantName=other", "tenantName"},
		"its rights":       {"solar", "spaces.solar-b.access.cordoned=true", "/spaces/solar-b"},
		"its own space":    {"solar", "spaces.solar.isolation=Shared", "spaces.solar: it is the space of the tenant's name"},
		"its own parent":   {"solar", "parent=solar", "parent: "},
		"a negative quota": {"solar", "namespaceQuota=-1", "/namespaceQuota"},
		"its own tenants":  {"solar", "publications.a.tenants.matchLabels.a=b", "/publications/a"},
		"a long name":      {"solar", "publications." + strings.Repeat("a", 60) + ".sources[0].kind=ConfigMap,publications." + strings.Repeat("a", 60) + ".sources[0].apiVersion=v1", "at most 63 characters"},
		"a reserved name":  {"system", "private=true", "the name is reserved"},
		"a dot":            {"so.lar", "private=true", "must be a DNS label"},
		"a profile":        {"solar", "ownerProfile=Admin", "/ownerProfile"},
		"a policy":         {"solar", "space.deletionPolicy=Keep", "/space/deletionPolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, stderr, err := helm(t, "template", test.release, "space", "--set", test.set); err == nil || !strings.Contains(stderr, test.says) {
				t.Errorf("%s says %q (%v), want it to name %s", test.set, stderr, err, test.says)
			}
		})
	}
}

// X1: who installs it is told how to connect.
func TestNotesOfATenantTellHowToConnect(t *testing.T) {
	for set, says := range map[string]string{
		"owners.alice.kind=User": "berth space connect solar --as-owner 'alice' -- kubectl",
		"private=true":           "It has no owner of its own",
	} {
		out, stderr, err := helm(t, "install", "solar", "space", "--namespace", "tenants", "--dry-run=client", "--set", set)
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		_, notes, _ := strings.Cut(out, "NOTES:")
		for _, want := range []string{says, "helm test solar --namespace tenants", "kubectl wait --for=condition=Ready tenant/solar"} {
			if !strings.Contains(notes, want) {
				t.Errorf("with %s, the notes don't say %q:\n%s", set, want, notes)
			}
		}
	}
}

// X1: values.yaml shows each value that the schema knows.
func TestAllValuesOfATenantAreShown(t *testing.T) {
	var schema struct{ Properties map[string]json.RawMessage }
	var values map[string]any
	for file, into := range map[string]any{"space/values.schema.json": &schema, "space/values.yaml": &values} {
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	delete(schema.Properties, "global")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(schema.Properties)), slices.Sorted(maps.Keys(values))); diff != "" {
		t.Errorf("-schema +values:\n%s", diff)
	}
}

// X1: the API server takes what is rendered, as Helm applies it, once and again with other values.
func TestTheAPIServerTakesATenant(t *testing.T) {
	r, ctx := startReleases(t), t.Context()
	for _, values := range [][]string{nil, {"owners.alice.kind=User"}, append(slices.Clone(solar), "space.platformName=berth")} {
		for _, o := range renderTenant(t, "solar", append(values, "test.enabled=false")...) {
			object := o.(client.Object)
			if object.GetNamespace() == "" && strings.HasPrefix(object.GetName(), "extra-") {
				object.SetNamespace("default")
			}
			if tenant, ok := o.(*v1alpha1.Tenant); ok {
				tenant.Spec.Parent = "" // it can't be changed
			}
			if err := apply(ctx, r.admin, object); err != nil {
				t.Errorf("%v: %T: %v", values, o, err)
			}
		}
	}
}
