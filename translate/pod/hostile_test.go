// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// US, S3, M4: no host pod refers to anything outside of the space that it was
// made for, and none is stronger than pod.Check allows, whatever the tenant
// wrote, and whether or not anything checked it.
func TestAnyPodStaysInItsSpace(t *testing.T) { rapid.Check(t, propAnyPodStaysInItsSpace) }

// FuzzPod is the same, led by coverage; each input is a stream of draws.
func FuzzPod(f *testing.F) {
	for seed := range uint64(8) {
		draws := rand.NewChaCha8([32]byte{byte(seed)})
		input := make([]byte, 16<<10)
		if _, err := draws.Read(input); err != nil {
			f.Fatal(err)
		}
		f.Add(input)
	}
	f.Fuzz(rapid.MakeFuzz(propAnyPodStaysInItsSpace))
}

func propAnyPodStaysInItsSpace(t *rapid.T) {
	v := sample.HostilePod(t)
	in := sample.AnySurroundings(t, v.Namespace)
	space := sample.Demo()
	if rapid.Bool().Draw(t, "own DNS") {
		space.Nameservers = []string{"10.1.0.10"}
	}
	before, inBefore := v.DeepCopy(), copySurroundings(in)
	host := pod.ToHost(space, v, in)

	if diff := cmp.Diff(before, v); diff != "" {
		t.Fatalf("translation changed its argument: -before +after:\n%s", diff)
	}
	if diff := cmp.Diff(inBefore, in); diff != "" {
		t.Fatalf("translation changed the surroundings: -before +after:\n%s", diff)
	}
	if diff := cmp.Diff(host, pod.ToHost(space, v, in)); diff != "" {
		t.Fatalf("translation is not deterministic: -first +second:\n%s", diff)
	}
	shuffled := in
	shuffled.Services = rapid.Permutation(in.Services).Draw(t, "services")
	shuffled.Namespaces = rapid.Permutation(in.Namespaces).Draw(t, "namespaces")
	if diff := cmp.Diff(host, pod.ToHost(space, v, shuffled)); diff != "" {
		t.Fatalf("translation depends on the order of a list: -listed +shuffled:\n%s", diff)
	}
	sample.CheckNoSharedMemory(t, v, host)
	sample.CheckNoSharedMemory(t, in, host)

	if created := pod.ForCreate(host); len(created.Spec.EphemeralContainers) > 0 {
		t.Errorf("it would be created with ephemeral containers, which no host takes")
	}
	checkOwnReferences(t, space, v, host)
	checkNoPlace(t, &host.Spec)
	checkFieldPaths(t, host)
	checkSelectors(t, space, host)
	if errs := checked(host); len(errs) > 0 {
		t.Errorf("the host pod asks for what tenants may not: %v", errs)
	}
	if t.Failed() {
		t.Logf("host pod: %s", cmp.Diff(&corev1.Pod{}, host))
	}
}

func copySurroundings(in sample.Surroundings) sample.Surroundings {
	out := sample.Surroundings{API: in.API.DeepCopy()}
	for _, service := range in.Services {
		out.Services = append(out.Services, service.DeepCopy())
	}
	for _, namespace := range in.Namespaces {
		out.Namespaces = append(out.Namespaces, namespace.DeepCopy())
	}
	return out
}

// checkOwnReferences fails for a reference that is no object of v's namespace.
func checkOwnReferences(t *rapid.T, space translate.Space, v, host *corev1.Pod) {
	if host.Namespace != space.HostNamespace() {
		t.Errorf("the host pod is in namespace %q", host.Namespace)
	}
	own := map[string]bool{space.TokenSecretName(v.Namespace, v.Name): true}
	for _, ref := range references(v) {
		own[space.HostName(v.Namespace, ref, translate.LimitSubdomain)] = true
	}
	for path, ref := range references(host) {
		if ref == "" || !own[ref] {
			t.Errorf("%s refers to %q, which is no object of namespace %s of the space", path, ref, v.Namespace)
		}
	}
	for path := range sample.FindAll[corev1.TypedObjectReference](&host.Spec) {
		t.Errorf("%s is a reference of any kind", path)
	}
	for path := range sample.FindAll[corev1.TypedLocalObjectReference](&host.Spec) {
		t.Errorf("%s is a reference of any kind", path)
	}
	for path, name := range sample.FindAll[string](&host.Spec) {
		if strings.HasSuffix(path, ".GMSACredentialSpecName") {
			t.Errorf("%s refers to %q, which is cluster-scoped", path, name)
		}
	}
	if len(host.OwnerReferences)+len(host.Finalizers) > 0 {
		t.Errorf("the host pod has owners %v and finalizers %v", host.OwnerReferences, host.Finalizers)
	}
}

// references are the names of all objects that a pod refers to, by their paths,
// found by the types of fields.
func references(pod *corev1.Pod) map[string]string {
	found := map[string]string{}
	for path, ref := range sample.FindAll[corev1.LocalObjectReference](&pod.Spec) {
		found[path] = ref.Name
	}
	for path, ref := range sample.FindAll[corev1.SecretVolumeSource](&pod.Spec) {
		found[path] = ref.SecretName
	}
	for path, ref := range sample.FindAll[corev1.PersistentVolumeClaimVolumeSource](&pod.Spec) {
		found[path] = ref.ClaimName
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Ephemeral != nil {
			found["ephemeral volume "+volume.Name] = pod.Name + "-" + volume.Name
		}
	}
	return found
}

// checkNoPlace fails for a spec that chooses or uses the host itself.
func checkNoPlace(t *rapid.T, spec *corev1.PodSpec) {
	for i, volume := range spec.Volumes {
		source := reflect.ValueOf(volume.VolumeSource)
		set := 0
		for j := range source.NumField() {
			if source.Field(j).IsNil() {
				continue
			}
			set++
			if name := source.Type().Field(j).Name; !slices.Contains([]string{"ConfigMap", "Secret", "EmptyDir", "DownwardAPI", "Projected", "PersistentVolumeClaim", "Image"}, name) {
				t.Errorf("volume %d has a source %s", i, name)
			}
		}
		if set == 0 {
			t.Errorf("volume %d has no source", i)
		}
	}
	for path := range sample.FindAll[corev1.ServiceAccountTokenProjection](spec) {
		t.Errorf("%s is a token of the host's API", path)
	}
	for path := range sample.FindAll[corev1.ClusterTrustBundleProjection](spec) {
		t.Errorf("%s is a trust bundle of the host", path)
	}
	for path := range sample.FindAll[corev1.PodCertificateProjection](spec) {
		t.Errorf("%s is a certificate of the host", path)
	}
	empty := corev1.PodSpec{
		NodeName: spec.NodeName, NodeSelector: spec.NodeSelector, HostNetwork: spec.HostNetwork, HostPID: spec.HostPID, HostIPC: spec.HostIPC,
		ServiceAccountName: spec.ServiceAccountName, DeprecatedServiceAccount: spec.DeprecatedServiceAccount, SchedulerName: spec.SchedulerName,
		PriorityClassName: spec.PriorityClassName, Priority: spec.Priority, PreemptionPolicy: spec.PreemptionPolicy, RuntimeClassName: spec.RuntimeClassName,
		Overhead: spec.Overhead, ResourceClaims: spec.ResourceClaims, SchedulingGates: spec.SchedulingGates, SchedulingGroup: spec.SchedulingGroup,
	}
	if diff := cmp.Diff(corev1.PodSpec{}, empty); diff != "" {
		t.Errorf("the host pod chooses what is the host's: -none +chosen:\n%s", diff)
	}
	if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken || spec.EnableServiceLinks == nil || *spec.EnableServiceLinks {
		t.Errorf("the host pod gets the host's token or service links")
	}
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		t.Errorf("the host pod has a node affinity")
	}
	for _, c := range spec.TopologySpreadConstraints {
		if c.NodeAffinityPolicy != nil || c.NodeTaintsPolicy != nil {
			t.Errorf("a topology constraint asks about nodes")
		}
	}
	for _, toleration := range spec.Tolerations {
		if toleration.Key != corev1.TaintNodeNotReady && toleration.Key != corev1.TaintNodeUnreachable {
			t.Errorf("the host pod tolerates %v", toleration)
		}
	}
}

// checkFieldPaths fails for a field path that tells the host's side of things.
func checkFieldPaths(t *rapid.T, host *corev1.Pod) {
	ours := regexp.MustCompile(`^metadata\.annotations\['(.+)'\]$`)
	for path, ref := range sample.FindAll[corev1.ObjectFieldSelector](&host.Spec) {
		match := ours.FindStringSubmatch(ref.FieldPath)
		ok := ref.FieldPath == "status.podIP" || ref.FieldPath == "status.podIPs" || (match != nil && translate.Owned(match[1]))
		if !ok {
			t.Errorf("%s is %q, which is the host's to know", path, ref.FieldPath)
		}
	}
}

// checkSelectors fails for a selector that could match a pod of another space.
func checkSelectors(t *rapid.T, space translate.Space, host *corev1.Pod) {
	for path, term := range sample.FindAll[corev1.PodAffinityTerm](&host.Spec) {
		if len(term.Namespaces) > 0 || term.NamespaceSelector != nil || len(term.MatchLabelKeys)+len(term.MismatchLabelKeys) > 0 {
			t.Errorf("%s still has namespaces or label keys: %v", path, term)
		}
	}
	for path, selector := range sample.FindAll[metav1.LabelSelector](&host.Spec) {
		if !slices.ContainsFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
			return r.Key == translate.LabelSpace && r.Operator == metav1.LabelSelectorOpIn && slices.Equal(r.Values, []string{space.Name})
		}) {
			t.Errorf("%s selects pods of other spaces: %v", path, selector)
		}
	}
}
