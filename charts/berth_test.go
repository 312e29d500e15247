// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
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
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/syncer/kinds"
	"github.com/berth-dev/berth/tenancy"
)

// envUpdate has tests write what a chart takes from the code.
const envUpdate = "BERTH_UPDATE_CHARTS"

// everything is what has all kinds of objects rendered.
var everything = []string{
	"spaces[0].name=team-a", "spaces[1].name=team-b", "spaces[1].isolation=Dedicated", "podDisruptionBudget.enabled=true",
	"networkPolicy.enabled=true", "networkPolicy.metricsFrom.matchLabels.team=monitoring", "service.type=LoadBalancer",
	"service.annotations.example=yes", "snapshots.to=s3://bucket/berth", "snapshots.credentialsSecret=bucket",
	"traces.endpoint=collector:4317", "pods.dnsUpstreams[0]=192.0.2.53", "storage.className=fast", "storage.accessMode=ReadWriteOncePod",
	"nodes.selector.pool=tenants", "nodes.labels={kubernetes.io/arch}", "spaces[1].nodes.selector.pool=b", "spaces[1].nodes.labels={disk}",
	"imagePullSecrets[0].name=registry", "nodeSelector.disk=ssd", "priorityClassName=platform",
	"tolerations[0].key=platform", "tolerations[0].operator=Exists", "podLabels.a=b", "podAnnotations.c=d",
	"serviceAccount.annotations.e=f", "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=zone",
}

// X1: what is rendered is strictly what the API server knows, whatever is asked for.
func TestTheChartRendersObjectsOfTheAPI(t *testing.T) {
	few, all := render(t), render(t, everything...)
	find[*appsv1.StatefulSet](t, few, nil)
	for _, o := range few {
		switch o.(type) {
		case *policyv1.PodDisruptionBudget, *networkingv1.NetworkPolicy, *rbacv1.Role, *corev1.Pod:
			t.Errorf("without values, a %T is made", o)
		}
	}
	find[*policyv1.PodDisruptionBudget](t, all, nil)
	find[*networkingv1.NetworkPolicy](t, all, nil)
	find[*corev1.Pod](t, all, nil)
	args := find[*appsv1.StatefulSet](t, all, nil).Spec.Template.Spec.Containers[0].Args
	for _, flag := range []string{"--node-selector=pool=tenants", "--node-labels=kubernetes.io/arch", "--node-selector=team-b:pool=b", "--node-labels=team-b:disk"} {
		if !slices.Contains(args, flag) {
			t.Errorf("berth serve gets %v, without %s", args, flag)
		}
	}
	find(t, all, func(p *admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == "platform-berth" })
}

// X1: two processes must never open one store, and a restart keeps it.
func TestBerthIsOnePodWithAVolume(t *testing.T) {
	set := find[*appsv1.StatefulSet](t, render(t, everything...), nil)
	if *set.Spec.Replicas != 1 {
		t.Errorf("%d replicas, want 1", *set.Spec.Replicas)
	}
	if policy := set.Spec.PersistentVolumeClaimRetentionPolicy; policy != nil && policy.WhenDeleted != appsv1.RetainPersistentVolumeClaimRetentionPolicyType {
		t.Errorf("claims go with the release: %v", policy)
	}
	claim := set.Spec.VolumeClaimTemplates[0]
	mounted := slices.ContainsFunc(set.Spec.Template.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == claim.Name && m.MountPath == "/data"
	})
	if !mounted || !slices.Contains(set.Spec.Template.Spec.Containers[0].Args, "--data-dir=/data") {
		t.Error("the stores are not on the claim")
	}
	if want := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}; !slices.Equal(claim.Spec.AccessModes, want) {
		t.Errorf("access modes %v, want %v", claim.Spec.AccessModes, want)
	}
}

// X1: the chart's pods may run in a namespace of the strictest Pod Security level.
func TestPodsKeepTheRestrictedLevel(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	objects := render(t, everything...)
	set, test := find[*appsv1.StatefulSet](t, objects, nil), find[*corev1.Pod](t, objects, nil)
	for name, pod := range map[string]corev1.PodTemplateSpec{"berth": set.Spec.Template, "the test": {ObjectMeta: test.ObjectMeta, Spec: test.Spec}} {
		level := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
		for _, result := range evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec) {
			if !result.Allowed {
				t.Errorf("%s: %s: %s", name, result.ForbiddenReason, result.ForbiddenDetail)
			}
		}
		for _, c := range pod.Spec.Containers {
			if root := c.SecurityContext.ReadOnlyRootFilesystem; root == nil || !*root {
				t.Errorf("%s: the root of container %s can be written", name, c.Name)
			}
			if len(c.Resources.Requests) == 0 {
				t.Errorf("%s: container %s asks for no resources", name, c.Name)
			}
		}
	}
	if test.Spec.AutomountServiceAccountToken == nil || *test.Spec.AutomountServiceAccountToken {
		t.Error("the test's pod has a token that it does not need")
	}
}

// M4: rights by name wherever RBAC knows names; none to write roles, to read one
// Secret, or to pose as anybody but a space's account.
func TestTheClusterRoleIsNarrow(t *testing.T) {
	role := find(t, render(t, everything...), func(r *rbacv1.ClusterRole) bool { return r.Name == "platform-berth" })
	reads := []string{"get", "list", "watch"}
	for _, rule := range role.Rules {
		writes := slices.ContainsFunc(rule.Verbs, func(v string) bool { return !slices.Contains(reads, v) })
		if writes && len(rule.ResourceNames) == 0 {
			t.Errorf("any %v may be written: %v", rule.Resources, rule.Verbs)
		}
		for _, of := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.ResourceNames} {
			if slices.Contains(of, "*") {
				t.Errorf("a rule says all: %v", rule)
			}
		}
		for _, verb := range []string{"escalate", "delete", "update", "deletecollection"} {
			if slices.Contains(rule.Verbs, verb) {
				t.Errorf("may %s %v", verb, rule.Resources)
			}
		}
		if slices.Contains(rule.Verbs, "impersonate") && !slices.Equal(rule.Resources, []string{"serviceaccounts"}) {
			t.Errorf("may pose as %v", rule.Resources)
		}
		if slices.Contains(rule.Resources, "secrets") && slices.Contains(rule.Verbs, "get") {
			t.Errorf("may %v any Secret", rule.Verbs)
		}
	}
	own := find(t, render(t, everything...), func(r *rbacv1.Role) bool { return r.Namespace == "platform" })
	if names := own.Rules[0].ResourceNames; len(own.Rules) != 1 || !slices.Equal(names, []string{"team-a-kubeconfig", "team-b-kubeconfig"}) {
		t.Errorf("in its own namespace it may write %v", own.Rules)
	}
}

// M4: who installs it is told of each right by name, and of each kind that is
// seen whole.
func TestTheDocumentationTellsOfEachRight(t *testing.T) {
	text, err := os.ReadFile("../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rights, _ := strings.Cut(string(text), "## What Berth may do on the host")
	rights, _, _ = strings.Cut(rights, "\n## ")
	objects := render(t, append(slices.Clone(everything), "sync.volumesnapshots=on", "sync.volumesnapshotclasses=on")...)
	role := find(t, objects, func(r *rbacv1.ClusterRole) bool { return r.Name == "platform-berth" })
	for _, rule := range role.Rules {
		for _, name := range rule.ResourceNames {
			if !strings.HasPrefix(name, "berth-team-") && !strings.Contains(rights, "`"+strings.Replace(name, "platform-berth", "NAMESPACE-RELEASE", 1)+"`") {
				t.Errorf("%v %v %s is not told of", rule.Verbs, rule.Resources, name)
			}
		}
	}
	for _, whole := range []string{"events, which", "ingresses, as", "volumes and classes it sees all"} { // of syncer's watches
		if !strings.Contains(rights, whole) {
			t.Errorf("it is not told that all of these are seen: %s", whole)
		}
	}
}

// M4: the role that the chart makes for spaces' accounts, and what the host holds
// them to, is what the code says, no more and no less.
func TestTheChartTakesFromTheCodeWhatSpacesAccountsMay(t *testing.T) {
	for name, from := range map[string]struct {
		function string
		value    any
	}{
		"space-rules.yaml":       {"tenancy.AccountRules", tenancy.AccountRules()},
		"space-policy.yaml":      {"tenancy.AccountPolicy", tenancy.AccountPolicy()},
		"space-pods-policy.yaml": {"tenancy.PodPolicy", tenancy.PodPolicy()},
	} {
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
		"platform-berth-space": tenancy.AccountPolicy(), "platform-berth-space-pods": tenancy.PodPolicy(),
	} {
		made := find(t, objects, func(p *admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == name })
		if diff := cmp.Diff(want, made.Spec); diff != "" {
			t.Errorf("the chart's policy %s is another one: %s", name, diff)
		}
		binding := find(t, objects, func(b *admissionv1.ValidatingAdmissionPolicyBinding) bool { return b.Spec.PolicyName == name })
		if !slices.Equal(binding.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) || binding.Spec.MatchResources != nil {
			t.Errorf("%s does not hold all: %v", name, binding.Spec)
		}
	}
}

// X1: the schema knows each kind that is synced, and the values of its switch, as
// the code has them.
func TestTheChartTakesFromTheCodeWhatIsSynced(t *testing.T) {
	const file = "berth/values.schema.json"
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var kindsOf []string
	for _, k := range kinds.Table() {
		kindsOf = append(kindsOf, fmt.Sprintf("        %q: %s", k.Name, switchSchema(t, k.Values)))
	}
	want := "    \"sync\": {\n      \"type\": \"object\",\n      \"additionalProperties\": false,\n      \"properties\": {\n" +
		strings.Join(kindsOf, ",\n") + "\n      }\n    },\n"
	text := regexp.MustCompile(`(?ms)^    "sync": \{\n.*?^    \},\n`).ReplaceAllLiteralString(string(have), want)
	if os.Getenv(envUpdate) != "" {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(text, string(have)); diff != "" || !strings.Contains(text, want) {
		t.Errorf("%s is stale; run: go generate ./charts\n%s", file, diff)
	}
}

// switchSchema is the schema of a switch that takes these values, a number or a
// string. Berth itself looks more closely at selectors and names.
func switchSchema(t *testing.T, values []string) string {
	t.Helper()
	var words []string
	var others []map[string]any
	pattern := func(p string) { others = append(others, map[string]any{"type": "string", "pattern": p}) }
	for _, v := range values {
		switch v {
		case kinds.Selector:
			pattern("=")
		case kinds.Bound:
			pattern("^-?[0-9]+$")
			others = append(others, map[string]any{"type": "integer", "minimum": math.MinInt32, "maximum": 1_000_000_000})
		case kinds.PreemptingBound:
			pattern("^" + kinds.Preempting + "-?[0-9]+$")
		case kinds.Provisioners:
			pattern(`^[^+,=\s]*[./][^+,=\s]*(\+[^+,=\s]*[./][^+,=\s]*)*$`)
		default:
			words = append(words, v)
		}
	}
	var schema any = map[string]any{"enum": words}
	if len(others) > 0 {
		schema = map[string]any{"anyOf": append([]map[string]any{{"enum": words}}, others...)}
	}
	text, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// X1: what Berth takes for a switch, the schema takes, too.
func TestTheSchemaTakesWhatSwitchesTake(t *testing.T) {
	rounds := [][]string{{"sync.storageclasses=tier in (a\\,b)\\,x=y", "sync.ownpriorityclasses=-5", "sync.ownstorageclasses=ebs.csi.aws.com+example.com/nfs"}}
	for _, k := range kinds.Table() {
		for i, v := range k.Values {
			if _, err := kinds.Parse([]string{k.Name + "=" + v}); err != nil {
				continue // it stands for others
			}
			if i+1 == len(rounds) {
				rounds = append(rounds, nil)
			}
			rounds[i+1] = append(rounds[i+1], "sync."+k.Name+"="+v)
		}
	}
	for _, values := range rounds {
		render(t, append(values, "spaces[0].name=a")...)
	}
}

// M4: so are the rights and the bounds of tenants' own classes, where they are
// switched on.
func TestTheChartBoundsTenantsOwnClassesAsTheCodeDoes(t *testing.T) {
	for _, sync := range [][]string{
		{"ownpriorityclasses=100"}, {"ownpriorityclasses=preempting:-5"}, {"ownstorageclasses=a.example/x+b.example"}, {"ownpriorityclasses=7", "ownstorageclasses=a.example"},
	} {
		switches, err := kinds.Parse(sync)
		if err != nil {
			t.Fatal(err)
		}
		values := slices.Clone(everything)
		for _, s := range sync {
			values = append(values, "sync."+s)
		}
		objects := render(t, values...)
		const name = "platform-berth-space-classes"
		role := find(t, objects, func(r *rbacv1.ClusterRole) bool { return r.Name == name })
		if diff := cmp.Diff(tenancy.ClassRules(switches), role.Rules); diff != "" {
			t.Errorf("%v: the chart's rights are others: %s", sync, diff)
		}
		binding := find(t, objects, func(r *rbacv1.ClusterRoleBinding) bool { return r.Name == name })
		if len(binding.Subjects) != 2 || binding.Subjects[1].Namespace != "berth-team-b" || binding.RoleRef.Name != name {
			t.Errorf("%v: bound to %v", sync, binding)
		}
		policy := find(t, objects, func(p *admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == name })
		if diff := cmp.Diff(tenancy.ClassPolicy(switches), policy.Spec); diff != "" {
			t.Errorf("%v: the chart's policy is another one: %s", sync, diff)
		}
	}
}

// M4: so are the rights on kinds that are off by default, of which Berth itself
// has none either until they are on.
func TestTheChartGrantsWhatSwitchesTake(t *testing.T) {
	all := []string{"poddisruptionbudgets=on", "serviceaccounts=on", "volumesnapshots=on", "volumesnapshotclasses=on", "gateways=on", "httproutes=on", "gatewayclasses=on"}
	for _, sync := range [][]string{nil, all[:1], all[1:2], all} {
		switches, err := kinds.Parse(sync)
		if err != nil {
			t.Fatal(err)
		}
		values := slices.Clone(everything)
		for _, s := range sync {
			values = append(values, "sync."+s)
		}
		objects := render(t, values...)
		role := find(t, objects, func(r *rbacv1.ClusterRole) bool { return r.Name == "platform-berth-space" })
		if diff := cmp.Diff(append(tenancy.AccountRules(), tenancy.MoreRules(switches)...), role.Rules); diff != "" {
			t.Errorf("%v: spaces' accounts get other rights: %s", sync, diff)
		}
		own := find(t, objects, func(r *rbacv1.ClusterRole) bool { return r.Name == "platform-berth" })
		for _, s := range all {
			resource, _, _ := strings.Cut(s, "=")
			watches := slices.ContainsFunc(own.Rules, func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, "watch")
			})
			if watches != switches.On(resource) {
				t.Errorf("%v: Berth may watch %s: %v", sync, resource, watches)
			}
		}
	}
}

// X1: a value that means nothing is refused before anything is made, and the
// message names it.
func TestBadValuesAreRefusedByName(t *testing.T) {
	for name, test := range map[string]struct {
		set    []string
		says   string
		reason string
	}{
		"unknown":        {[]string{"replicas=3"}, "replicas", "there is one pod"},
		"unknown within": {[]string{"image.tags=x"}, "tags", "a slip of the finger"},
		"twice":          {[]string{"spaces[0].name=a", "spaces[1].name=a", "spaces[1].isolation=Dedicated"}, "spaces[1].name: a is listed twice", "which of the two?"},
		"its own place":  {[]string{"spaces[0].name=spaces", "nameOverride=x"}, "spaces[0].name: the space's namespace would be the release's", "tenants' pods beside Berth's"},
		"upper case":     {[]string{"spaces[0].name=Team"}, "/spaces/0/name", "no DNS label"},
		"reserved":       {[]string{"spaces[0].name=system"}, "/spaces/0/name", "it is the host's"},
		"too long":       {[]string{"spaces[0].name=" + strings.Repeat("a", 58)}, "/spaces/0/name", "its namespace's name would be too long"},
		"no name":        {[]string{"spaces[0].isolation=Shared"}, "/spaces/0", "a space has a name"},
		"isolation":      {[]string{"spaces[0].name=a", "spaces[0].isolation=None"}, "/spaces/0/isolation", "Shared or Dedicated"},
		"plain":          {[]string{"advertise=http://berth"}, "/advertise", "there is TLS only"},
		"with a path":    {[]string{"advertise=https://berth/x"}, "/advertise", "spaces are told by the path"},
		"no duration":    {[]string{"idleAfter=soon"}, "/idleAfter", "want 15m"},
		"a port":         {[]string{"service.port=70000"}, "/service/port", "out of range"},
		"no node's port": {[]string{"service.nodePort=30443"}, "service.nodePort", "a ClusterIP has none"},
		"none and some":  {[]string{"pods.dnsUpstreams[0]=none", "pods.dnsUpstreams[1]=192.0.2.53"}, "/pods/dnsUpstreams", "none is none"},
		"no resolver":    {[]string{"pods.dnsUpstreams[0]=nowhere"}, "/pods/dnsUpstreams", "want an address"},
		"shared volume":  {[]string{"storage.accessMode=ReadWriteMany"}, "/storage/accessMode", "two pods must never hold it"},
		"unbounded":      {[]string{"spaces[0].name=a", "sync.ownpriorityclasses=5", "admissionPolicy.enabled=false"}, "sync.ownpriorityclasses", "nothing would hold the bound"},
		"a bad label":    {[]string{"nodes.selector.pool=a b"}, "/nodes/selector/pool", "no node has it"},
		"names of nodes": {[]string{"spaces[0].name=a", `spaces[0].nodes.labels={kubernetes.io/hostname}`}, "/spaces/0/nodes/labels/0", "nodes are hidden"},
		"no such kind":   {[]string{"sync.podz=all"}, "podz", "a slip of the finger"},
		"no such switch": {[]string{"sync.ingresses=5"}, "/sync/ingresses", "it is on or off"},
		"a word for all": {[]string{"sync.ownstorageclasses=on"}, "/sync/ownstorageclasses", "each provisioner is named"},
		"a high bound":   {[]string{"sync.ownpriorityclasses=2000000000"}, "/sync/ownpriorityclasses", "the system's priorities are higher"},
		"a short grace":  {[]string{"terminationGracePeriodSeconds=5"}, "/terminationGracePeriodSeconds", "less than a stop takes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"template", "berth", "berth", "--namespace", "berth-spaces"}
			for _, s := range test.set {
				args = append(args, "--set", s)
			}
			if _, stderr, err := helm(t, args...); err == nil || !strings.Contains(stderr, test.says) {
				t.Errorf("%s: %v says %q (%v), want it to name %s", test.reason, test.set, stderr, err, test.says)
			}
		})
	}
}

// X1: values.yaml shows each value that the schema knows, with a word about it.
func TestAllValuesAreShown(t *testing.T) {
	var schema struct {
		Properties map[string]struct {
			Properties map[string]json.RawMessage
		}
	}
	var shown map[string]any
	values, err := os.ReadFile("berth/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("berth/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(values, &shown); err != nil {
		t.Fatal(err)
	}
	for name, property := range schema.Properties {
		value, there := shown[name]
		if !there && name != "global" {
			t.Errorf("values.yaml does not show %s", name)
		}
		for part := range property.Properties {
			if within, ok := value.(map[string]any); ok && len(within) > 0 && within[part] == nil {
				t.Errorf("values.yaml does not show %s.%s", name, part)
			}
		}
	}
}

// X1: what the flags offer, the values do, too: no names outside of the spaces, and
// a port of the nodes that kubeconfigs can lead to from the first.
func TestValuesReachTheService(t *testing.T) {
	objects := render(t, "spaces[0].name=a", "pods.dnsUpstreams[0]=none", "service.type=NodePort", "service.nodePort=30443")
	service := find(t, objects, func(s *corev1.Service) bool { return s.Name == "berth" })
	if port := service.Spec.Ports[0].NodePort; port != 30443 {
		t.Errorf("the nodes' port is %d", port)
	}
	if args := find[*appsv1.StatefulSet](t, objects, nil).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--dns-upstream=none") {
		t.Errorf("Berth asks others for names: %v", args)
	}
}

// X1: who installs it is told what to type next.
func TestNotesTellWhatComesNext(t *testing.T) {
	out, stderr, err := helm(t, "install", "berth", "berth", "--namespace", "platform", "--dry-run=client", "--set", "spaces[0].name=team-a")
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	for _, says := range []string{"https://berth.platform.svc", "helm test berth --namespace platform", "get secret team-a-kubeconfig", "port-forward service/berth"} {
		if _, notes, _ := strings.Cut(out, "NOTES:"); !strings.Contains(notes, says) {
			t.Errorf("the notes don't say %q:\n%s", says, notes)
		}
	}
	out, stderr, err = helm(t, "install", "berth", "berth", "--namespace", "platform", "--dry-run=client", "--set", "spaces[0].name=team-a,kubeconfigSecrets=false")
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	if _, notes, _ := strings.Cut(out, "NOTES:"); strings.Contains(notes, "helm test") || !strings.Contains(notes, "berth kubeconfig team-a") {
		t.Errorf("the notes tell of a test that there is not, or not of the kubeconfig:\n%s", notes)
	}
}
