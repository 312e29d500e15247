// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// S3, S4: one pod, whole, as the host gets it.
func TestAPlainPodOnTheHost(t *testing.T) {
	space := sample.Demo()
	space.Nameservers = []string{"10.1.0.10"}
	api := sample.APIService()
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "berth-demo", Name: "demo--default--web",
			Labels:      map[string]string{"run": "web", "app.kubernetes.io/managed-by": "berth", "berth.dev/space": "demo", "berth.dev/namespace": "default"},
			Annotations: map[string]string{"berth.dev/namespace": "default", "berth.dev/name": "web", "berth.dev/uid": "v-uid"},
		},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false),
			EnableServiceLinks:           ptr.To(false),
			Hostname:                     "web",
			SecurityContext:              &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			DNSPolicy:                    corev1.DNSNone,
			DNSConfig: &corev1.PodDNSConfig{
				Nameservers: []string{"10.1.0.10"}, Searches: []string{"default.svc.cluster.local", "svc.cluster.local", "cluster.local"},
				Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("5")}},
			},
			Containers: []corev1.Container{{
				Name: "web", Image: "nginx",
				VolumeMounts: sample.PlainPod().Spec.Containers[0].VolumeMounts,
				Env: []corev1.EnvVar{
					{Name: "KUBERNETES_SERVICE_HOST", Value: "10.1.0.1"},
					{Name: "KUBERNETES_SERVICE_PORT", Value: "443"},
					{Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: "443"},
					{Name: "KUBERNETES_PORT", Value: "tcp://10.1.0.1:443"},
					{Name: "KUBERNETES_PORT_443_TCP", Value: "tcp://10.1.0.1:443"},
					{Name: "KUBERNETES_PORT_443_TCP_PROTO", Value: "tcp"},
					{Name: "KUBERNETES_PORT_443_TCP_PORT", Value: "443"},
					{Name: "KUBERNETES_PORT_443_TCP_ADDR", Value: "10.1.0.1"},
				},
			}},
			Volumes: []corev1.Volume{{Name: "access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				DefaultMode: ptr.To[int32](0o644),
				Sources: []corev1.VolumeProjection{
					{Secret: &corev1.SecretProjection{
						LocalObjectReference: corev1.LocalObjectReference{Name: space.TokenSecretName("default", "web")},
						Items:                []corev1.KeyToPath{{Key: "access.0", Path: "token"}},
					}},
					{ConfigMap: &corev1.ConfigMapProjection{
						LocalObjectReference: corev1.LocalObjectReference{Name: "demo--default--kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
					}},
					{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
						{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['berth.dev/namespace']"}},
					}}},
				},
			}}}},
		},
	}
	if diff := cmp.Diff(want, pod.ToHost(space, sample.PlainPod(), sample.Surroundings{API: api})); diff != "" {
		t.Errorf("host pod: -want +got:\n%s", diff)
	}
}

// S4: of what pod.Check lets through, nothing is lost on the way to the host but
// what names other objects or the host, and that in its own tests.
func TestAnAdmittedPodKeepsWhatTheTenantAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := sample.TenantPod(t)
		if errs := pod.Check(&v.ObjectMeta, &v.Spec); len(errs) > 0 {
			t.Fatalf("tenantPod draws what tenants may not: %v", errs)
		}
		space := sample.Demo()
		space.Settings.PodSecurity.Seccomp = corev1.SeccompProfileTypeUnconfined
		host := pod.ToHost(space, v, sample.AnySurroundings(t, v.Namespace))

		type kept struct {
			RestartPolicy corev1.RestartPolicy
			Grace, Until  *int64
			Share         *bool
			Security      *corev1.PodSecurityContext
			Aliases       []corev1.HostAlias
			OS            *corev1.PodOS
			Users         *bool
			Resources     *corev1.ResourceRequirements
			Override      *string
		}
		of := func(p corev1.PodSpec) kept {
			return kept{
				p.RestartPolicy, p.TerminationGracePeriodSeconds, p.ActiveDeadlineSeconds, p.ShareProcessNamespace,
				p.SecurityContext, p.HostAliases, p.OS, p.HostUsers, p.Resources, p.HostnameOverride,
			}
		}
		if diff := cmp.Diff(of(v.Spec), of(host.Spec)); diff != "" {
			t.Errorf("the pod as a whole: -tenant +host:\n%s", diff)
		}
		checkContainersKept(t, v.Spec.InitContainers, host.Spec.InitContainers)
		checkContainersKept(t, v.Spec.Containers, host.Spec.Containers)
		checkVolumesKept(t, v.Spec.Volumes, host.Spec.Volumes)
		if len(v.Spec.ImagePullSecrets) != len(host.Spec.ImagePullSecrets) {
			t.Errorf("image pull secrets: %v became %v", v.Spec.ImagePullSecrets, host.Spec.ImagePullSecrets)
		}
	})
}

func checkContainersKept(t *rapid.T, tenant, host []corev1.Container) {
	ignored := []cmp.Option{
		cmpopts.EquateEmpty(), cmpopts.IgnoreFields(corev1.Container{}, "Env"),
		cmpopts.IgnoreFields(corev1.LocalObjectReference{}, "Name"), cmpopts.IgnoreFields(corev1.ObjectFieldSelector{}, "FieldPath"),
	}
	if diff := cmp.Diff(tenant, host, ignored...); diff != "" {
		t.Errorf("containers: -tenant +host:\n%s", diff)
	}
	for i := range tenant {
		own := len(host[i].Env) - len(tenant[i].Env)
		if own < 0 {
			t.Fatalf("container %s lost variables: %v", tenant[i].Name, host[i].Env)
		}
		if diff := cmp.Diff(tenant[i].Env, host[i].Env[own:], ignored...); diff != "" {
			t.Errorf("variables of %s: -tenant +host:\n%s", tenant[i].Name, diff)
		}
	}
}

func checkVolumesKept(t *rapid.T, tenant, host []corev1.Volume) {
	expected := make([]corev1.Volume, len(tenant))
	for i := range tenant {
		tenant[i].DeepCopyInto(&expected[i])
		source := &expected[i].VolumeSource
		if source.Ephemeral != nil {
			*source = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}
		}
		if *source == (corev1.VolumeSource{}) {
			source.EmptyDir = &corev1.EmptyDirVolumeSource{}
		}
		if source.Projected == nil {
			continue
		}
		for j := range source.Projected.Sources {
			if token := source.Projected.Sources[j].ServiceAccountToken; token != nil {
				source.Projected.Sources[j] = corev1.VolumeProjection{Secret: &corev1.SecretProjection{
					Items: []corev1.KeyToPath{{Key: fmt.Sprintf("%s.%d", tenant[i].Name, j), Path: token.Path}},
				}}
			}
		}
	}
	diff := cmp.Diff(expected, host, cmpopts.EquateEmpty(),
		cmpopts.IgnoreFields(corev1.LocalObjectReference{}, "Name"), cmpopts.IgnoreFields(corev1.SecretVolumeSource{}, "SecretName"),
		cmpopts.IgnoreFields(corev1.PersistentVolumeClaimVolumeSource{}, "ClaimName"), cmpopts.IgnoreFields(corev1.ObjectFieldSelector{}, "FieldPath"))
	if diff != "" {
		t.Errorf("volumes: -tenant +host:\n%s", diff)
	}
}

func TestHostnameIsTheOneOfAClusterOfTheSpacesOwn(t *testing.T) {
	cases := map[string]struct {
		reason     string
		name, asks string
		want       string
	}{
		"FromName":  {"the host pod's name must not show", "web-0", "", "web-0"},
		"Asked":     {"the tenant's word counts", "web-0", "box", "box"},
		"Dots":      {"a pod's name may hold dots, a hostname not", "web.v1", "", "web-v1"},
		"Long":      {"a kubelet cuts at 63", sample.LongName('n', 70), "", sample.LongName('n', 63)},
		"CutAtDash": {"and lets no dash stand at the end", sample.LongName('n', 62) + "-x", "", sample.LongName('n', 62)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := sample.PlainPod()
			v.Name, v.Spec.Hostname = tc.name, tc.asks
			if got := pod.ToHost(sample.Demo(), v, sample.Surroundings{}).Spec.Hostname; got != tc.want {
				t.Errorf("%s: hostname of %q is %q, want %q", tc.reason, tc.name, got, tc.want)
			}
		})
	}
}

// S1: the engine takes to the host what a pod refers to; a name that it misses
// leaves the pod waiting for ever.
func TestPodReferencesAreThoseOfTheHostPod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := sample.TenantPod(t)
		space := sample.Demo()
		refs := pod.ReferencesOf(v)
		listed := map[string]bool{}
		for _, ref := range slices.Concat(refs.ConfigMaps, refs.Secrets) {
			if ref.Namespace != v.Namespace {
				t.Fatalf("%v is not in the pod's namespace", ref)
			}
			listed[space.HostName(ref.Namespace, ref.Name, translate.LimitSubdomain)] = true
		}
		used := map[string]bool{}
		host := pod.ToHost(space, v, sample.Surroundings{})
		claims := sample.FindAll[corev1.PersistentVolumeClaimVolumeSource](&host.Spec)
		for path, name := range references(host) {
			if _, claim := claims[path]; !claim && name != space.TokenSecretName(v.Namespace, v.Name) {
				used[name] = true
			}
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(listed)), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("-used +listed:\n%s", diff)
		}
	})
}

// S4: each token that a pod projects is asked for once, under the key that the
// host pod mounts.
func TestTokenRequestsAreThoseThatTheHostPodMounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := sample.TenantPod(t)
		requested := map[string]bool{}
		for _, request := range pod.TokenRequests(v) {
			if requested[request.Key] {
				t.Fatalf("two tokens share key %q", request.Key)
			}
			requested[request.Key] = true
		}
		mounted := map[string]bool{}
		space := sample.Demo()
		for _, secret := range sample.FindAll[corev1.SecretProjection](&pod.ToHost(space, v, sample.Surroundings{}).Spec) {
			if secret.Name == space.TokenSecretName(v.Namespace, v.Name) {
				mounted[secret.Items[0].Key] = true
			}
		}
		if diff := cmp.Diff(mounted, requested); diff != "" {
			t.Fatalf("-mounted +requested:\n%s", diff)
		}
	})
}

func TestAGatedPodIsHeldBack(t *testing.T) {
	v := sample.PlainPod()
	if pod.Gated(v) {
		t.Error("a pod without gates is held back")
	}
	v.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	if !pod.Gated(v) {
		t.Error("a pod with a gate is not held back")
	}
}
