// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bufio"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// X1: the operator has its own account and pods, which are neither behind Berth's Service nor counted as Berth's.
func TestTheOperatorIsADeploymentOfItsOwn(t *testing.T) {
	objects := render(t, append(slices.Clone(everything), "operator.replicas=2")...)
	operator, berth := find[*appsv1.Deployment](t, objects, nil), find[*appsv1.StatefulSet](t, objects, nil)
	pod := operator.Spec.Template
	account := pod.Spec.ServiceAccountName
	if account == berth.Spec.Template.Spec.ServiceAccountName {
		t.Errorf("it acts as %s, as Berth does", account)
	}
	find(t, objects, func(a *corev1.ServiceAccount) bool { return a.Name == account })
	args := pod.Spec.Containers[0].Args
	for _, want := range []string{"operator", "--leader-elect", "--lease-namespace=platform", "--metrics-listen=:8080", "--log-format=json", "--verbosity=0"} {
		if !slices.Contains(args, want) {
			t.Errorf("berth operator gets %v, without %s", args, want)
		}
	}
	own := labels.Set(pod.Labels)
	if !labels.SelectorFromSet(operator.Spec.Selector.MatchLabels).Matches(own) {
		t.Error("the Deployment does not select its pods")
	}
	for _, o := range objects {
		var selector labels.Selector
		switch o := o.(type) {
		case *corev1.Service:
			selector = labels.SelectorFromSet(o.Spec.Selector)
		case *policyv1.PodDisruptionBudget:
			selector = labels.SelectorFromSet(o.Spec.Selector.MatchLabels)
		case *networkingv1.NetworkPolicy:
			selector = labels.SelectorFromSet(o.Spec.PodSelector.MatchLabels)
		case *appsv1.StatefulSet:
			selector = labels.SelectorFromSet(o.Spec.Selector.MatchLabels)
		default:
			continue
		}
		name := o.(metav1.Object).GetName()
		if selects := selector.Matches(own); selects != (name == operator.Name) {
			t.Errorf("%T %s selects the operator's pods: %v", o, name, selects)
		}
		if selects := selector.Matches(labels.Set(berth.Spec.Template.Labels)); selects != (name == berth.Name) {
			t.Errorf("%T %s selects Berth's pod: %v", o, name, selects)
		}
	}
	for _, o := range render(t, "operator.enabled=false") {
		if name := o.(metav1.Object).GetName(); strings.Contains(name, "operator") || strings.Contains(name, "publisher") {
			t.Errorf("without an operator, there is %T %s", o, name)
		}
	}
}

// M4: the operator may write objects of Berth's API, its lease, and events, and of all else read only what Publications copy by
// default, and whether a namespace exists. It can neither read Secrets nor write what it reads.
func TestTheOperatorsRightsAreFew(t *testing.T) {
	objects := render(t, everything...)
	role := find(t, objects, func(r *rbacv1.ClusterRole) bool { return r.Name == "platform-berth-operator" })
	for _, rule := range role.Rules {
		existence := slices.Equal(rule.Resources, []string{"namespaces"}) && slices.Equal(rule.Verbs, []string{"get"})
		if !slices.Equal(rule.APIGroups, []string{v1alpha1.GroupVersion.Group}) && !existence {
			t.Errorf("it has rights on %v", rule)
		}
	}
	publisher := find(t, objects, func(r *rbacv1.ClusterRole) bool { return r.Name == "platform-berth-publisher" })
	if len(publisher.Rules) > 0 {
		t.Errorf("the control plane would replace %v", publisher.Rules)
	}
	selector, err := metav1.LabelSelectorAsSelector(&publisher.AggregationRule.ClusterRoleSelectors[0])
	if err != nil {
		t.Fatal(err)
	}
	defaults := find(t, objects, func(r *rbacv1.ClusterRole) bool { return selector.Matches(labels.Set(r.Labels)) })
	for _, rule := range defaults.Rules {
		if diff := cmp.Diff([]string{"get", "list", "watch"}, rule.Verbs); diff != "" {
			t.Errorf("it may do more than read %v: %s", rule.Resources, diff)
		}
		if slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Resources, "*") {
			t.Errorf("it reads %v", rule.Resources)
		}
	}
	for _, o := range render(t, "operator.publishDefaults=false") {
		if r, ok := o.(*rbacv1.ClusterRole); ok && selector.Matches(labels.Set(r.Labels)) {
			t.Errorf("without defaults, there is %s", r.Name)
		}
	}
	account := find[*appsv1.Deployment](t, objects, nil).Spec.Template.Spec.ServiceAccountName
	bound := map[string]bool{}
	for _, o := range objects {
		switch b := o.(type) {
		case *rbacv1.ClusterRoleBinding:
			if b.Subjects[0].Name == account {
				bound[b.RoleRef.Name] = true
			}
		case *rbacv1.RoleBinding:
			if b.Subjects[0].Name == account {
				bound[b.Namespace+"/"+b.RoleRef.Name] = true
				of := find(t, objects, func(r *rbacv1.Role) bool { return r.Namespace == b.Namespace && r.Name == b.RoleRef.Name })
				for _, rule := range of.Rules {
					reads := !slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) })
					if r := rule.Resources[0]; r != "events" && r != "leases" && (r != "shards" || !reads) {
						t.Errorf("in %s it has rights on %v", b.Namespace, rule)
					}
				}
			}
		}
	}
	want := map[string]bool{"platform-berth-operator": true, "platform-berth-publisher": true, "platform/berth-operator": true, "default/platform-berth-operator-events": true}
	if diff := cmp.Diff(want, bound); diff != "" {
		t.Errorf("it is bound to other roles: %s", diff)
	}
	find(t, objects, func(p *admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == "platform-berth-operator" })
}

// M4: the page about access to the host names each right of the operator.
func TestTheDocumentationTellsOfEachRightOfTheOperator(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/host-access.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rights, _ := strings.Cut(string(text), "## Rights of the operator's account")
	rights, _, _ = strings.Cut(rights, "\n## ")
	var rules []rbacv1.PolicyRule
	for _, o := range render(t) {
		switch r := o.(type) {
		case *rbacv1.ClusterRole:
			if r.Name == "platform-berth-operator" || r.Name == "platform-berth-publisher-defaults" {
				rules = append(rules, r.Rules...)
			}
		case *rbacv1.Role:
			if r.Name == "berth-operator" {
				rules = append(rules, r.Rules...)
			}
		}
	}
	for _, rule := range rules {
		row := "| " + strings.Join(rule.Verbs, ", ") + " | "
		for _, resource := range rule.Resources {
			if !slices.ContainsFunc(strings.Split(rights, "\n"), func(line string) bool {
				return strings.HasPrefix(line, row) && strings.Contains(line, "`"+resource+"`")
			}) {
				t.Errorf("no row says %q of %s", row, resource)
			}
		}
	}
}

// X1, T4: tenants and the configuration of the values are objects of the API, which the operator's pods apply before it starts.
func TestTheChartWritesTheTenantsOfTheValues(t *testing.T) {
	objects := render(t, "tenants.acme.owners[0].kind=User", "tenants.acme.owners[0].name=alice", "tenants.acme-dev.parent=acme", "tenants.acme-dev.private=true",
		"configuration.maxTreeDepth=4", "configuration.tenantDefaults.quota.pods=1000000", "commonLabels.team=platform")
	operator := find[*appsv1.Deployment](t, objects, nil)
	first := operator.Spec.Template.Spec.InitContainers
	if len(first) != 1 || first[0].Args[0] != "apply" || !slices.Contains(first[0].Args, "/etc/berth/objects.yaml") {
		t.Fatalf("its pods begin with %v", first)
	}
	written := find(t, objects, func(c *corev1.ConfigMap) bool { return c.Name == operator.Spec.Template.Spec.Volumes[0].ConfigMap.Name })
	got := decodeBerth(t, written.Data["objects.yaml"])
	team := map[string]string{"team": "platform"}
	want := []runtime.Object{
		&v1alpha1.BerthConfiguration{
			TypeMeta: typed("berth.dev/v1alpha1", "BerthConfiguration"), ObjectMeta: metav1.ObjectMeta{Name: "berth"},
			Spec: v1alpha1.BerthConfigurationSpec{MaxTreeDepth: ptr.To(int32(4)), TenantDefaults: v1alpha1.TenantDefaults{Quota: quantities("pods", "1000000")}},
		},
		&v1alpha1.Tenant{
			TypeMeta: typed("berth.dev/v1alpha1", "Tenant"), ObjectMeta: metav1.ObjectMeta{Name: "acme", Labels: team},
			Spec: v1alpha1.TenantSpec{Owners: []v1alpha1.Owner{{Kind: v1alpha1.UserKind, Name: "alice"}}},
		},
		&v1alpha1.Tenant{
			TypeMeta: typed("berth.dev/v1alpha1", "Tenant"), ObjectMeta: metav1.ObjectMeta{Name: "acme-dev", Labels: team},
			Spec: v1alpha1.TenantSpec{Parent: "acme", Private: ptr.To(true)},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	named := find(t, render(t, "platformName=other"), func(c *corev1.ConfigMap) bool { return c.Data["objects.yaml"] != "" })
	if c := decodeBerth(t, named.Data["objects.yaml"])[0].(*v1alpha1.BerthConfiguration); c.Spec.TenantDefaults.PlatformName != "other" {
		t.Errorf("spaces of tenants are those of the platform %q", c.Spec.TenantDefaults.PlatformName)
	}
	if without := find[*appsv1.Deployment](t, render(t), nil).Spec.Template.Spec; len(without.InitContainers)+len(without.Volumes) > 0 {
		t.Errorf("without tenants, its pods have %v and %v", without.InitContainers, without.Volumes)
	}
}

// decodeBerth reads objects of Berth's API, strictly.
func decodeBerth(t *testing.T, text string) (objects []runtime.Object) {
	t.Helper()
	known := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(known), apiextensionsv1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	strict := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		if onlyComments(document) {
			continue
		}
		object, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		objects = append(objects, object)
	}
}

// X1: spaces may be a map, too, with the same meaning as a list.
func TestSpacesMayBeAMap(t *testing.T) {
	config := func(values ...string) string {
		return find(t, render(t, values...), func(c *corev1.ConfigMap) bool { return c.Data["config.yaml"] != "" }).Data["config.yaml"]
	}
	want := config("spaces[0].name=a", "spaces[0].spec.podSecurity.level=restricted", "spaces[1].name=b", "spaces[1].spec.isolation=Dedicated")
	if got := config("spaces.b.isolation=Dedicated", "spaces.a.podSecurity.level=restricted"); got != want {
		t.Errorf("as a map, the spaces are\n%s\nwant\n%s", got, want)
	}
}

// X1: common labels and annotations are on all objects, further objects are templates, and a digest names the image.
func TestWhatAllObjectsHaveInCommon(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	objects := render(t, append(slices.Clone(everything), "commonLabels.team=platform", "commonAnnotations.contact=ops", "operator.replicas=2", "image.digest="+digest, "image.repository=registry.example/berth",
		"extraObjects[0].apiVersion=v1", "extraObjects[0].kind=ConfigMap", "extraObjects[0].metadata.name=extra-{{ .Release.Name }}", "extraObjects[0].metadata.labels.team=platform", "extraObjects[0].metadata.annotations.contact=ops")...)
	for _, o := range objects {
		m := o.(metav1.Object)
		if m.GetLabels()["team"] != "platform" || m.GetAnnotations()["contact"] != "ops" {
			t.Errorf("%T %s has the labels %v and the annotations %v", o, m.GetName(), m.GetLabels(), m.GetAnnotations())
		}
	}
	find(t, objects, func(c *corev1.ConfigMap) bool { return c.Name == "extra-berth" })
	for _, image := range []string{
		find[*appsv1.Deployment](t, objects, nil).Spec.Template.Spec.Containers[0].Image, find[*appsv1.StatefulSet](t, objects, nil).Spec.Template.Spec.Containers[0].Image,
		find[*corev1.Pod](t, objects, nil).Spec.Containers[0].Image,
	} {
		if image != "registry.example/berth@"+digest {
			t.Errorf("an image is %s", image)
		}
	}
	set := find[*appsv1.StatefulSet](t, objects, nil)
	if set.Spec.Selector.MatchLabels["team"] != "" || set.Spec.VolumeClaimTemplates[0].Labels["team"] != "" {
		t.Error("a change of common labels could not be applied: they are in what is immutable")
	}
}
