// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/crds"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
)

// M4: rights by name wherever RBAC knows names, and a policy about all else that may be written; none to write roles, to
// read one Secret, or to pose as anybody but a space's account.
func TestTheClusterRoleIsNarrow(t *testing.T) {
	objects := render(t, append(slices.Clone(everything), "sync.ownpriorityclasses=5")...)
	role := find(t, objects, func(r *rbacv1.ClusterRole) bool { return r.Name == "platform-berth" })
	own := find(t, objects, func(r *rbacv1.Role) bool { return r.Namespace == "platform" && r.Name == "berth" })
	policy := find(t, objects, func(p *admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == "platform-berth" })
	held := func(resource string) bool {
		return slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool {
			return slices.Contains(r.Resources, resource) && len(r.Operations) == 3 && len(r.ResourceNames) == 0
		})
	}
	// RBAC knows no prefixes of names, and the names of spaces are not known when the role is made.
	ofAnyName := map[string][]string{
		"namespaces": {"get", "create", "patch", "delete"}, "clusterrolebindings": {"create", "patch", "delete"},
		"spaces": {"get", "list", "watch", "create", "update", "patch", "delete"}, "spaces/status": {"update", "patch"}, "spaces/finalizers": {"update", "patch"},
		"tokenreviews":   {"create"},                           // nothing is stored
		"resourcequotas": {"get", "create", "patch", "delete"}, // scoped ones have names of their own
		// The policy holds it to labels of volumes. The names of ledgers are those of tenants, and all platforms share them.
		"persistentvolumes": {"get", "patch"}, "quotaledgers/status": {"update"},
		"crdshares/status": {"patch"}, "resourcesyncs/status": {"patch"}, // which says what each platform sees of the host, and gives no rights
		"secrets": {"create", "patch", "delete"}, "services": {"create", "patch", "delete"}, "statefulsets": {"create", "patch", "delete"},
	}
	poses := find(t, objects, func(r *rbacv1.ClusterRole) bool { return r.Name == "platform-berth-space"+isolation.ImpersonatorSuffix })
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{syncer.ServiceAccount}, Verbs: []string{"impersonate"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{syncer.ServiceAccount}, Verbs: []string{"create"}},
	}
	if diff := cmp.Diff(want, poses.Rules); diff != "" {
		t.Errorf("in namespaces of spaces it may do something else than pose as their accounts: %s", diff)
	}
	reads := []string{"get", "list", "watch"}
	for _, rule := range slices.Concat(role.Rules, own.Rules) {
		if len(rule.NonResourceURLs) > 0 && (!slices.Equal(rule.NonResourceURLs, []string{"/openid/v1/jwks"}) || !slices.Equal(rule.Verbs, []string{"get"})) {
			t.Errorf("may %v %v", rule.Verbs, rule.NonResourceURLs)
		}
		writes := slices.ContainsFunc(rule.Verbs, func(v string) bool { return !slices.Contains(reads, v) })
		for _, resource := range rule.Resources {
			if writes && len(rule.ResourceNames) == 0 && !slices.Equal(rule.Verbs, ofAnyName[resource]) {
				t.Errorf("any %s may be written: %v", resource, rule.Verbs)
			}
			if writes && !held(resource) && !slices.Contains([]string{"clusterroles", "spaces/finalizers", "tokenreviews", "quotaledgers/status", "crdshares/status", "resourcesyncs/status"}, resource) {
				t.Errorf("nothing but RBAC is about writes of %s", resource)
			}
		}
		for _, of := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.ResourceNames} {
			if slices.Contains(of, "*") {
				t.Errorf("a rule says all: %v", rule)
			}
		}
		for _, verb := range []string{"escalate", "deletecollection"} {
			if slices.Contains(rule.Verbs, verb) {
				t.Errorf("may %s %v", verb, rule.Resources)
			}
		}
		if slices.Contains(rule.Verbs, "bind") && (len(rule.ResourceNames) == 0 ||
			slices.ContainsFunc(rule.ResourceNames, func(role string) bool { return !strings.HasPrefix(role, "platform-berth-space") })) {
			t.Errorf("may bind %v", rule.ResourceNames)
		}
		if slices.Contains(rule.Verbs, "impersonate") {
			t.Errorf("may pose as %v of all namespaces", rule.Resources)
		}
		if slices.Contains(rule.Resources, "secrets") && slices.Contains(rule.Verbs, "get") {
			t.Errorf("may %v any Secret", rule.Verbs)
		}
	}
	for _, rule := range own.Rules {
		if slices.ContainsFunc(rule.Verbs, func(v string) bool { return slices.Contains(reads, v) }) {
			t.Errorf("in its own namespace it may read %v", rule.Resources)
		}
	}
}

// M4: who installs it is told of each right by name, and of each kind that is
// seen whole.
func TestTheDocumentationTellsOfEachRight(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/host-access.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rights, _ := strings.Cut(string(text), "## Rights of Berth's account")
	rights, _, _ = strings.Cut(rights, "\n## ")
	objects := render(t, append(slices.Clone(everything),
		"sync.volumesnapshots=on", "sync.volumesnapshotclasses=on", "sync.resourceclaims=on", "sync.gateways=on", "sync.httproutes=on", "sync.gatewayclasses=on", "sync.ownpriorityclasses=5")...)
	role := find(t, objects, func(r *rbacv1.ClusterRole) bool { return r.Name == "platform-berth" })
	for _, rule := range role.Rules {
		writes := slices.ContainsFunc(rule.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) })
		if row := "| " + strings.Join(rule.Verbs, ", ") + " | "; writes && len(rule.ResourceNames) == 0 && !slices.ContainsFunc(strings.Split(rights, "\n"), func(line string) bool {
			return strings.HasPrefix(line, row) && strings.Contains(line, "`"+rule.Resources[0])
		}) {
			t.Errorf("it is not told that any %v may be written: no row says %q of them", rule.Resources, row)
		}
		for _, path := range rule.NonResourceURLs {
			if !strings.Contains(rights, "`"+path+"`") {
				t.Errorf("%v %s is not documented", rule.Verbs, path)
			}
		}
		for _, name := range rule.ResourceNames {
			if !strings.Contains(rights, "`"+strings.Replace(name, "platform-berth", "NAMESPACE-RELEASE", 1)+"`") {
				t.Errorf("%v %v %s is not told of", rule.Verbs, rule.Resources, name)
			}
		}
	}
	for _, whole := range []string{"- events, which", "- ingresses, because", "- gateways and routes, for", "- volumes and classes", "- nodes, where"} { // of syncer's watches
		if !strings.Contains(rights, whole) {
			t.Errorf("it is not told that all of these are seen: %s", whole)
		}
	}
}

// M4: the role that the chart makes for spaces' accounts, and what the host holds
// them to, is what the code says, no more and no less.
func TestTheChartTakesFromTheCodeWhatSpacesAccountsMay(t *testing.T) {
	type source struct {
		function string
		value    any
	}
	sources := map[string]source{
		"space-rules.yaml":           {"isolation.AccountRules", isolation.AccountRules()},
		"watch-rules.yaml":           {"resources.Table", watchRules()},
		"optional-resources.yaml":    {"resources.Table", optionalResources()},
		"space-policy.yaml":          {"isolation.AccountPolicy", isolation.AccountPolicy()},
		"space-pods-policy.yaml":     {"isolation.PodPolicy", isolation.PodPolicy()},
		"space-shares-policy.yaml":   {"isolation.SharePolicy", isolation.SharePolicy()},
		"space-runtimes-policy.yaml": {"isolation.RuntimePolicy", isolation.RuntimePolicy()},
		"space-class-fields.yaml":    {"hostpolicy.ClassFields", hostpolicy.ClassFields()},
	}
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		sources[strings.ToLower(d.Spec.Names.Kind)+"-definition.yaml"] = source{"api/crds", d.Spec}
	}
	for name, from := range sources {
		file := "berth/files/" + name
		want, err := yaml.Marshal(from.value)
		if err != nil {
			t.Fatal(err)
		}
		want = append([]byte("# Written by `go generate ./charts` from "+from.function+".\n"), want...)
		if os.Getenv(envUpdate) != "" {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(have)); diff != "" {
			t.Errorf("%s is stale; run: go generate ./charts\n%s", file, diff)
		}
	}
	objects := render(t, everything...)
	for name, want := range map[string]admissionv1.ValidatingAdmissionPolicySpec{
		"platform-berth-space": isolation.AccountPolicy(), "platform-berth-space-pods": isolation.PodPolicy(),
		"platform-berth-space-runtimes": isolation.RuntimePolicy(), "platform-berth-space-shares": isolation.SharePolicy(),
	} {
		made := find(t, objects, func(p *admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == name })
		if diff := cmp.Diff(want, made.Spec); diff != "" {
			t.Errorf("the chart's policy %s is another one: %s", name, diff)
		}
		binding := find(t, objects, func(b *admissionv1.ValidatingAdmissionPolicyBinding) bool { return b.Spec.PolicyName == name })
		if !slices.Equal(binding.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) || binding.Spec.MatchResources != nil ||
			cmp.Diff(binding.Spec.ParamRef, paramsOf(want)) != "" {
			t.Errorf("%s does not hold all: %v", name, binding.Spec)
		}
	}
}

// watchRules are the rights to watch what is synced unless it is disabled, by group.
func watchRules() (rules []rbacv1.PolicyRule) {
	for _, r := range resources.Table() {
		if r.Type == nil || r.Optional() {
			continue
		}
		of := r.GVR()
		i := slices.IndexFunc(rules, func(have rbacv1.PolicyRule) bool { return have.APIGroups[0] == of.Group })
		if i < 0 {
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{of.Group}, Resources: []string{of.Resource}, Verbs: []string{"list", "watch"}})
		} else {
			rules[i].Resources = append(rules[i].Resources, of.Resource)
		}
	}
	return rules
}

// optionalResource is what the chart has to know of a resource that is not synced unless it is enabled.
type optionalResource struct {
	Name  string `json:"name"`
	Group string `json:"group"`
	// Written says that spaces' accounts write it, Removed that what is left of it is deleted when it is disabled.
	Written bool `json:"written,omitempty"`
	Removed bool `json:"removed,omitempty"`
	// Definition is the name of the CustomResourceDefinition by which a host has it.
	Definition string `json:"definition,omitempty"`
}

// optionalResources are those but nodes, and the classes of tenants, of which other templates are.
func optionalResources() (all []optionalResource) {
	for _, r := range resources.Table() {
		exported := r.Direction == resources.ToHost && r.InCluster
		if r.Type == nil || !r.Optional() || exported || r.Name == resources.Nodes {
			continue
		}
		o := optionalResource{Name: r.Name, Group: r.GVR().Group, Written: r.Direction == resources.ToHost}
		o.Removed = o.Written && !r.Lasts
		if r.Extension {
			o.Definition = r.GVR().GroupResource().String()
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b optionalResource) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func paramsOf(policy admissionv1.ValidatingAdmissionPolicySpec) *admissionv1.ParamRef {
	if policy.ParamKind == nil {
		return nil
	}
	return isolation.AllParams()
}

// renderSynced renders everything, with these sync options.
func renderSynced(t *testing.T, sync []string) (resources.SyncOptions, []runtime.Object) {
	t.Helper()
	syncOptions, err := resources.Parse(sync)
	if err != nil {
		t.Fatal(err)
	}
	values := slices.Clone(everything)
	for i, s := range sync { // what spaces may turn on takes the same rights as what is on
		values = append(values, []string{"sync.", "allowedSync."}[i%2]+s)
	}
	return syncOptions, render(t, values...)
}

// M4: so are the rights and the bounds of tenants' own classes, where they are
// enabled.
func TestTheChartBoundsExportedClassesAsTheCodeDoes(t *testing.T) {
	for _, sync := range [][]string{
		{"ownpriorityclasses=100"}, {"ownpriorityclasses=preempting:5"}, {"ownstorageclasses=a.example/x+b.example"}, {"ownpriorityclasses=7", "ownstorageclasses=a.example"},
		{"ownpersistentvolumes=a.example={space}/"}, {"ownpersistentvolumes=a.example=any:+b.example=nas#{space}#+a.example=any:vol-", "ownstorageclasses=a.example"},
	} {
		syncOptions, objects := renderSynced(t, sync)
		const name = "platform-berth-space-classes"
		role := find(t, objects, func(r *rbacv1.ClusterRole) bool { return r.Name == name })
		if diff := cmp.Diff(isolation.ClassRules(syncOptions), role.Rules); diff != "" {
			t.Errorf("%v: the chart's rights are others: %s", sync, diff)
		}
		for _, o := range objects {
			if binding, ok := o.(*rbacv1.ClusterRoleBinding); ok && binding.RoleRef.Name == name {
				t.Errorf("%v: the chart binds %v, which Berth does for each space", sync, binding.Subjects)
			}
		}
		policy := find(t, objects, func(p *admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == name })
		if diff := cmp.Diff(isolation.ClassPolicy(syncOptions), policy.Spec); diff != "" {
			t.Errorf("%v: the chart's policy is another one: %s", sync, diff)
		}
	}
}

// M4: so are the rights on kinds that are off by default, of which Berth itself
// has none either until they are on.
func TestTheChartGrantsWhatSwitchesTake(t *testing.T) {
	all := []string{"poddisruptionbudgets=on", "serviceaccounts=on", "volumesnapshots=on", "volumesnapshotclasses=on", "resourceclaims=on", "gateways=on", "httproutes=on", "gatewayclasses=on", "nodes=all"}
	for _, sync := range [][]string{nil, all[:1], all[1:2], {"nodes=standins"}, all, {"nodes=all", "daemonsets=translated"}} {
		syncOptions, objects := renderSynced(t, sync)
		role := find(t, objects, func(r *rbacv1.ClusterRole) bool { return r.Name == "platform-berth-space-base" })
		if diff := cmp.Diff(append(isolation.AccountRules(), isolation.MoreRules(syncOptions)...), role.Rules); diff != "" {
			t.Errorf("%v: spaces' accounts get other rights: %s", sync, diff)
		}
		watches := find(t, objects, func(r *rbacv1.ClusterRole) bool {
			return r.Name == "platform-berth-space"+isolation.DedicatedSuffix+"-base"
		})
		if diff := cmp.Diff(isolation.WatchRules(syncOptions), watches.Rules); diff != "" {
			t.Errorf("%v: accounts of dedicated spaces may watch something else: %s", sync, diff)
		}
		reads := find(t, objects, func(r *rbacv1.ClusterRole) bool {
			return r.Name == "platform-berth-space"+isolation.DedicatedReaderSuffix+"-base"
		})
		if diff := cmp.Diff(isolation.ReadRules(syncOptions), reads.Rules); diff != "" {
			t.Errorf("%v: accounts of dedicated spaces may read something else: %s", sync, diff)
		}
		own := find(t, objects, func(r *rbacv1.ClusterRole) bool { return r.Name == "platform-berth" })
		for _, s := range all {
			resource, _, _ := strings.Cut(s, "=")
			watches := slices.ContainsFunc(own.Rules, func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, "watch")
			})
			always := resource == resources.ServiceAccounts // the spaces' own are put back
			if watches != (always || syncOptions.On(resource) && syncOptions.Value(resource) != resources.VirtualNodes) {
				t.Errorf("%v: Berth may watch %s: %v", sync, resource, watches)
			}
		}
	}
}

// D4: Berth reads the Secrets of stores by their names, and no others.
func TestSecretsOfStoresAreReadByName(t *testing.T) {
	objects := render(t, append(slices.Clone(everything), "storeSecrets={team-a-store,team-b-store}")...)
	role := find(t, objects, func(r *rbacv1.Role) bool { return r.Namespace == "platform" && r.Name == "berth-stores" })
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"team-a-store", "team-b-store"}, Verbs: []string{"get"}}}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("rights in the namespace of the platform: %s", diff)
	}
	for _, object := range render(t, everything...) {
		if r, ok := object.(*rbacv1.Role); ok && r.Name == "berth-stores" {
			t.Error("there is a role for Secrets of stores, although there are none")
		}
	}
}
