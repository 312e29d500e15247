// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	configv1alpha1 "github.com/berth-dev/berth/api/config/v1alpha1"
	"github.com/berth-dev/berth/api/crds"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/pod"
)

// envUpdate has tests write what a chart takes from the code.
const envUpdate = "BERTH_UPDATE_CHARTS"

// everything is what has all kinds of objects rendered.
var everything = []string{
	"platformName=other",
	"spaces[0].name=team-a", "spaces[1].name=team-b", "spaces[1].spec.isolation=Dedicated", "podDisruptionBudget.enabled=true",
	"networkPolicy.enabled=true", "spaceDefaults.network.closedRanges={203.0.113.0/24}", "networkPolicy.metricsFrom.matchLabels.team=monitoring", "service.type=LoadBalancer",
	"service.annotations.example=yes", "snapshots.to=s3://bucket/berth", "snapshots.alsoTo={s3://other/berth}", "snapshots.credentialsSecret=bucket",
	"traces.endpoint=collector:4317", "pods.dnsUpstreams[0]=192.0.2.53", "storage.className=fast", "storage.accessMode=ReadWriteOncePod",
	"spaceDefaults.nodes.selector.pool=tenants", "spaceDefaults.nodes.allowedLabels={kubernetes.io/arch}", "spaces[1].spec.nodes.selector.pool=b", "spaces[1].spec.nodes.allowedLabels={disk}",
	"imagePullSecrets[0].name=registry", "nodeSelector.disk=ssd", "priorityClassName=platform",
	"tolerations[0].key=platform", "tolerations[0].operator=Exists", "podLabels.a=b", "podAnnotations.c=d",
	"spaceDefaults.podSecurity.level=restricted", "spaces[1].spec.podSecurity.netRaw=Denied", "reservedLabels={example.com}", "spaces[0].spec.network.allowedDomains={a.example.com}", "nodeAddresses=Visible", "argocdNamespace=argocd",
	"spaceDefaults.limits.watches=4000", "sync.ingresses=off", "allowedSync.ingresses=on", "allowedSync.configmaps=all", "spaces[0].spec.sync[0].resource=configmaps", "spaces[0].spec.sync[0].value=all", "serviceAccount.annotations.e=f", "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=zone",
	"replicas=3", "tenants.acme.private=true", "configuration.maxTreeDepth=4", "operator.nodeSelector.disk=ssd", "operator.tolerations[0].operator=Exists", "operator.priorityClassName=platform", "operator.podLabels.a=b", "operator.podAnnotations.c=d",
	"operator.topologySpreadConstraints[0].maxSkew=1", "operator.topologySpreadConstraints[0].topologyKey=zone", "operator.topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule", "operator.serviceAccount.annotations.e=f",
}

// X1: what is rendered is strictly what the API server knows, whatever is asked for.
func TestTheChartRendersObjectsOfTheAPI(t *testing.T) {
	few, all := render(t), render(t, everything...)
	find[*appsv1.StatefulSet](t, few, nil)
	for _, o := range few {
		switch o.(type) {
		case *policyv1.PodDisruptionBudget:
			t.Errorf("without values, a %T is made", o)
		}
	}
	find[*policyv1.PodDisruptionBudget](t, all, nil)
	named := func(name string) func(*networkingv1.NetworkPolicy) bool {
		return func(p *networkingv1.NetworkPolicy) bool { return p.Name == name }
	}
	find(t, all, named("berth"))
	checkDedicatedPolicy(t, find(t, few, named("berth-dedicated")), find[*appsv1.StatefulSet](t, few, nil))
	find[*corev1.Pod](t, all, nil)
	args := find[*appsv1.StatefulSet](t, all, nil).Spec.Template.Spec.Containers[0].Args
	if !slices.Contains(args, "--config=/etc/berth/config.yaml") || !slices.Contains(args, "--platform-name=other") {
		t.Errorf("berth serve gets %v, without its configuration file or its name", args)
	}
	find(t, all, func(p *admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == "platform-berth" })
}

// checkDedicatedPolicy checks that only Berth's pod reaches those of dedicated spaces (S3).
func checkDedicatedPolicy(t *testing.T, policy *networkingv1.NetworkPolicy, berth *appsv1.StatefulSet) {
	t.Helper()
	from := policy.Spec.Ingress[0].From
	if len(policy.Spec.Ingress) != 1 || len(from) != 1 || from[0].NamespaceSelector != nil || from[0].IPBlock != nil ||
		!reflect.DeepEqual(from[0].PodSelector.MatchLabels, berth.Spec.Selector.MatchLabels) {
		t.Errorf("those of dedicated spaces are reached from %v", policy.Spec.Ingress)
	}
}

// S3: the StatefulSet of which dedicated spaces' pods are made is one, and is neither behind Berth's Service nor reaches the host.
func TestTheChartHasATemplateOfDedicatedSpacesPods(t *testing.T) {
	objects := render(t, append(slices.Clone(everything), "dedicated.resources.limits.memory=3Gi", "dedicated.storage.size=5Gi", "dedicated.storage.className=own", "dedicated.nodeSelector.pool=own")...)
	file := filepath.Join(t.TempDir(), "dedicated.yaml")
	config := find(t, objects, func(c *corev1.ConfigMap) bool { return c.Data["dedicated.yaml"] != "" })
	if err := os.WriteFile(file, []byte(config.Data["dedicated.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := pod.ReadTemplate(file)
	if err != nil {
		t.Fatal(err)
	}
	of := set.Spec.Template
	claim := set.Spec.VolumeClaimTemplates[0].Spec
	if set.Namespace != "platform" || of.Spec.NodeSelector["pool"] != "own" || of.Spec.Containers[0].Resources.Limits.Memory().String() != "3Gi" ||
		claim.Resources.Requests.Storage().String() != "5Gi" || *claim.StorageClassName != "own" || *of.Spec.AutomountServiceAccountToken {
		t.Errorf("the template is %+v", set)
	}
	if limit := of.Spec.Containers[0].Resources.Limits.StorageEphemeral(); limit.IsZero() {
		t.Error("a pod may fill the node's disk")
	}
	for _, volume := range of.Spec.Volumes {
		if volume.EmptyDir != nil && volume.EmptyDir.SizeLimit == nil {
			t.Errorf("volume %s may fill the node's disk", volume.Name)
		}
	}
	service := find(t, objects, func(s *corev1.Service) bool { return s.Name == "berth" })
	if labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(of.Labels)) {
		t.Error("the pods of dedicated spaces are behind Berth's Service")
	}
	args := find[*appsv1.StatefulSet](t, objects, nil).Spec.Template.Spec.Containers[0].Args
	if !slices.Contains(args, "--dedicated-pods=/etc/berth/dedicated.yaml") {
		t.Errorf("berth serve gets %v", args)
	}
}

// X1: what the chart is told of spaces is what Berth reads, strictly.
func TestTheChartWritesTheConfigurationFile(t *testing.T) {
	written := find(t, render(t, everything...), func(c *corev1.ConfigMap) bool { return c.Data["config.yaml"] != "" })
	scheme := runtime.NewScheme()
	if err := configv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var got configv1alpha1.PlatformConfiguration
	if _, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode([]byte(written.Data["config.yaml"]), nil, &got); err != nil {
		t.Fatalf("%v:\n%s", err, written.Data["config.yaml"])
	}
	named := func(name string, spec v1alpha1.SpaceSpec) v1alpha1.Space {
		return v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	}
	want := configv1alpha1.PlatformConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: "config.berth.dev/v1alpha1", Kind: "PlatformConfiguration"},
		SpaceDefaults: v1alpha1.SpaceSpec{
			Sync:        []v1alpha1.SyncOption{{Resource: "ingresses", Value: "off"}},
			Limits:      map[string]resource.Quantity{"watches": resource.MustParse("4000")},
			PodSecurity: v1alpha1.PodSecurity{Level: "restricted"},
			Nodes:       v1alpha1.Nodes{Selector: map[string]string{"pool": "tenants"}, AllowedLabels: []string{"kubernetes.io/arch"}},
			Network:     v1alpha1.Network{ClosedRanges: []string{"203.0.113.0/24"}},
		},
		AllowedSync: []v1alpha1.SyncOption{{Resource: "configmaps", Value: "all"}, {Resource: "ingresses", Value: "on"}},
		Spaces: []v1alpha1.Space{
			named("team-a", v1alpha1.SpaceSpec{Sync: []v1alpha1.SyncOption{{Resource: "configmaps", Value: "all"}}, Network: v1alpha1.Network{AllowedDomains: []string{"a.example.com"}}}),
			named("team-b", v1alpha1.SpaceSpec{
				Isolation: v1alpha1.Dedicated, PodSecurity: v1alpha1.PodSecurity{NetRaw: v1alpha1.Denied},
				Nodes: v1alpha1.Nodes{Selector: map[string]string{"pool": "b"}, AllowedLabels: []string{"disk"}},
			}),
		},
		IngressAnnotations: []string{}, ReservedLabels: []string{"example.com"}, NodeAddresses: configv1alpha1.Visible,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// X1: two processes must never open one store, and a restart keeps it.
func TestAPodOfBerthHasAVolumeOfItsOwn(t *testing.T) {
	set := find[*appsv1.StatefulSet](t, render(t, everything...), nil)
	if *set.Spec.Replicas != 3 {
		t.Errorf("%d replicas, want 3", *set.Spec.Replicas)
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
	operator := find[*appsv1.Deployment](t, objects, nil)
	for name, pod := range map[string]corev1.PodTemplateSpec{"berth": set.Spec.Template, "the operator": operator.Spec.Template, "the test": {ObjectMeta: test.ObjectMeta, Spec: test.Spec}} {
		level := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
		for _, result := range evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec) {
			if !result.Allowed {
				t.Errorf("%s: %s: %s", name, result.ForbiddenReason, result.ForbiddenDetail)
			}
		}
		for _, c := range append(pod.Spec.Containers, pod.Spec.InitContainers...) {
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
	for values, says := range map[string]string{
		"operator.enabled=true":                     "{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: solar}, spec: {owners: [{kind: User, name: alice}]}}",
		"platformName=other":                        "{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: solar}, spec: {owners: [{kind: User, name: alice}], space: {platformName: other}}}",
		"platformName=other,operator.enabled=false": "{apiVersion: berth.dev/v1alpha1, kind: Space, metadata: {name: team-a}, spec: {platformName: other}}",
	} {
		out, stderr, err := helm(t, "install", "berth", "berth", "--namespace", "platform", "--dry-run=client", "--set", values)
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		if _, notes, _ := strings.Cut(out, "NOTES:"); !strings.Contains(notes, says) {
			t.Errorf("with %s, the notes don't tell how to create the first one:\n%s", values, notes)
		}
	}
	out, stderr, err = helm(t, "install", "berth", "berth", "--namespace", "platform", "--dry-run=client", "--set", "spaces[0].name=team-a,kubeconfigSecrets=false,operator.enabled=false")
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	if _, notes, _ := strings.Cut(out, "NOTES:"); strings.Contains(notes, "helm test") || !strings.Contains(notes, "berth kubeconfig team-a") {
		t.Errorf("the notes tell of a test that there is not, or not of the kubeconfig:\n%s", notes)
	}
}

// definition is that of objects of a kind.
func definition(t *testing.T, kind string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		if d.Spec.Names.Kind == kind {
			return d
		}
	}
	t.Fatalf("there is no definition of %s", kind)
	return nil
}

// X1: the chart's definitions are the API's, stay when the release goes unless that is not wanted, and are another release's if
// that is asked for.
func TestTheChartBringsTheDefinitions(t *testing.T) {
	wanted, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	objects, dropped := render(t, everything...), render(t, "crds.keep=false")
	for _, want := range wanted {
		named := func(d *apiextensionsv1.CustomResourceDefinition) bool { return d.Name == want.Name }
		made := find(t, objects, named)
		if diff := cmp.Diff(want.Spec, made.Spec); diff != "" {
			t.Errorf("the chart's definition %s is another one: %s", made.Name, diff)
		}
		if made.Annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("annotations are %v: the definition %s, and all of its objects, go with the release", made.Annotations, made.Name)
		}
		if goes := find(t, dropped, named); goes.Annotations["helm.sh/resource-policy"] != "" {
			t.Errorf("the definition %s stays: %v", goes.Name, goes.Annotations)
		}
	}
	for _, o := range render(t, "crds.enabled=false") {
		if _, made := o.(*apiextensionsv1.CustomResourceDefinition); made {
			t.Error("a definition is made all the same")
		}
	}
}
