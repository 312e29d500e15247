// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

func debugger(name string) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: name, Image: "busybox", Stdin: true, TTY: true,
			Env: []corev1.EnvVar{{Name: "WORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "password"}, Key: "word",
			}}}},
		},
		TargetContainerName: "web",
	}
}

// S4: an ephemeral container goes down as others do, once, and beside what the
// host has of its own.
func TestEphemeralContainersAreAddedToTheHostPod(t *testing.T) {
	v := sample.PlainPod()
	in := sample.Surroundings{API: sample.APIService()}
	have := pod.ForCreate(pod.ToHost(sample.Demo(), v, in))
	v.Spec.EphemeralContainers = []corev1.EphemeralContainer{debugger("one")}
	want := pod.ToHost(sample.Demo(), v, in)
	hosts := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "of-the-host"}}
	have.Spec.EphemeralContainers = []corev1.EphemeralContainer{hosts}
	if !pod.AddEphemeral(want, have) {
		t.Fatal("no change")
	}
	expected := debugger("one")
	expected.Env[0].ValueFrom.SecretKeyRef.Name = sample.Demo().HostName("default", "password", translate.LimitSubdomain)
	expected.Env = append(want.Spec.Containers[0].Env, expected.Env...)
	if diff := cmp.Diff([]corev1.EphemeralContainer{hosts, expected}, have.Spec.EphemeralContainers); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if refs := pod.ReferencesOf(v); len(refs.Secrets) != 1 || refs.Secrets[0].Name != "password" {
		t.Errorf("the secret of its environment is not among what the pod refers to: %v", refs)
	}
	// What a host has can't be changed: a service that comes later is not told.
	in.Services = []*corev1.Service{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}, Spec: sample.APIService().Spec}}
	if pod.AddEphemeral(pod.ToHost(sample.Demo(), v, in), have) {
		t.Error("it is changed again")
	}
}

func list(cpu, memory string) corev1.ResourceList {
	out := corev1.ResourceList{}
	if cpu != "" {
		out[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		out[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return out
}

// S4: a resize sets what the tenant asks for, and leaves what the host filled in.
func TestAResizeGoesToTheHostPod(t *testing.T) {
	type resources = corev1.ResourceRequirements
	cases := map[string]struct {
		reason      string
		asks, hosts resources
		class       corev1.PodQOSClass
		want        resources
		silent      bool
	}{
		"More": {
			reason: "what kubectl patch --subresource resize does",
			asks:   resources{Requests: list("200m", "64Mi"), Limits: list("300m", "64Mi")},
			hosts:  resources{Requests: list("100m", "64Mi"), Limits: list("300m", "64Mi")},
			want:   resources{Requests: list("200m", "64Mi"), Limits: list("300m", "64Mi")},
		},
		"Alike": {
			reason: "written otherwise, it is as much",
			asks:   resources{Requests: list("0.1", "0.25Gi")}, hosts: resources{Requests: list("100m", "256Mi")},
			want: resources{Requests: list("100m", "256Mi")}, silent: true,
		},
		"Defaults": {
			reason: "the host's limits fill in what is not asked for",
			hosts:  resources{Requests: list("10m", "64Mi"), Limits: list("250m", "512Mi")},
			want:   resources{Requests: list("10m", "64Mi"), Limits: list("250m", "512Mi")}, silent: true,
		},
		"PastTheDefaultLimit": {
			reason: "a request without a limit must not pass the one that the host filled in",
			asks:   resources{Requests: list("400m", "")},
			hosts:  resources{Requests: list("100m", "64Mi"), Limits: list("250m", "512Mi")},
			want:   resources{Requests: list("400m", "64Mi"), Limits: list("400m", "512Mi")},
		},
		"GuaranteedByDefault": {
			reason: "the host's limits happened to equal the requests, and the QoS class is immutable",
			asks:   resources{Requests: list("100m", "512Mi")}, class: corev1.PodQOSGuaranteed,
			hosts: resources{Requests: list("250m", "512Mi"), Limits: list("250m", "512Mi")},
			want:  resources{Requests: list("100m", "512Mi"), Limits: list("100m", "512Mi")},
		},
		"Foreign": {
			reason: "devices are not for tenants, and no resize has them",
			asks:   resources{Limits: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}},
			hosts:  resources{Limits: list("250m", "")}, want: resources{Limits: list("250m", "")}, silent: true,
		},
	}
	for name, tc := range cases {
		for place, of := range map[string]func(*corev1.PodSpec) *resources{
			"Container": func(spec *corev1.PodSpec) *resources { return &spec.Containers[0].Resources },
			"Sidecar":   func(spec *corev1.PodSpec) *resources { return &spec.InitContainers[0].Resources },
		} {
			t.Run(name+place, func(t *testing.T) {
				v := sample.PlainPod()
				v.Spec.InitContainers = []corev1.Container{{Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
				have := pod.ToHost(sample.Demo(), v, sample.Surroundings{})
				// A webhook of the host's may have put containers in front.
				have.Spec.Containers = append([]corev1.Container{{Name: "proxy"}}, have.Spec.Containers...)
				have.Spec.InitContainers = append([]corev1.Container{{Name: "setup"}}, have.Spec.InitContainers...)
				of(&v.Spec).Requests, of(&v.Spec).Limits = tc.asks.Requests, tc.asks.Limits
				tc.hosts.DeepCopyInto(of(inFront(have)))
				have.Status.QOSClass = tc.class
				expected := have.DeepCopy()
				tc.want.DeepCopyInto(of(inFront(expected)))
				if changed := pod.Resize(pod.ToHost(sample.Demo(), v, sample.Surroundings{}), have); changed == tc.silent {
					t.Errorf("%s: Resize reports %v", tc.reason, changed)
				}
				if diff := cmp.Diff(expected, have); diff != "" {
					t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
				}
			})
		}
	}
}

// inFront is a spec without the first container of each list, which it shares
// with the pod.
func inFront(pod *corev1.Pod) *corev1.PodSpec {
	return &corev1.PodSpec{Containers: pod.Spec.Containers[1:], InitContainers: pod.Spec.InitContainers[1:]}
}

func TestAResizeOfThePodAsAWholeGoesToTheHostPod(t *testing.T) {
	v := sample.PlainPod()
	v.Spec.Resources = &corev1.ResourceRequirements{Requests: list("100m", "64Mi")}
	have := pod.ToHost(sample.Demo(), v, sample.Surroundings{})
	v.Spec.Resources.Requests = list("200m", "64Mi")
	want := pod.ToHost(sample.Demo(), v, sample.Surroundings{})
	if !pod.Resize(want, have) || have.Spec.Resources.Requests.Cpu().String() != "200m" {
		t.Errorf("the host pod's resources are %v", have.Spec.Resources)
	}
	if pod.Resize(want, have) {
		t.Error("it is resized again")
	}
}

// S7: a host pod that is as wanted is left alone, whatever it is.
func TestAPodAsItWasMadeIsNotResized(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := sample.TenantPod(t)
		want, have := pod.ToHost(sample.Demo(), v, sample.Surroundings{}), pod.ToHost(sample.Demo(), v, sample.Surroundings{})
		if pod.Resize(want, have) || pod.AddEphemeral(want, have) {
			t.Fatal("a change of a pod that is as wanted")
		}
	})
}

// S4: what the space says of a readiness gate is said on the host, and nothing else.
func TestReadinessGatesAreAnsweredOnTheHost(t *testing.T) {
	const gate = "example.com/lb"
	at := metav1.NewTime(time.Unix(1700000000, 0).UTC())
	condition := func(kind string, status corev1.ConditionStatus) corev1.PodCondition {
		return corev1.PodCondition{Type: corev1.PodConditionType(kind), Status: status, LastTransitionTime: at}
	}
	v := sample.PlainPod()
	v.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}, {ConditionType: gate}, {ConditionType: corev1.PodReady}}
	made := pod.ToHost(sample.Demo(), v, sample.Surroundings{})
	made.UID = "h-uid"
	if len(made.Spec.ReadinessGates) != 2 {
		t.Fatalf("the host pod's gates are %v", made.Spec.ReadinessGates)
	}
	hosts := string(made.Spec.ReadinessGates[0].ConditionType)
	made.Spec.ReadinessGates = append(made.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: "host.example/lb"})
	ready, foreign := condition("Ready", "False"), condition("host.example/lb", "True")
	cases := map[string]struct {
		reason             string
		tenant, host, want []corev1.PodCondition
		silent             bool
	}{
		"True": {
			reason: "the pod may become ready",
			tenant: []corev1.PodCondition{condition(gate, "True")}, host: []corev1.PodCondition{ready, foreign},
			want: []corev1.PodCondition{ready, foreign, condition(hosts, "True")},
		},
		"False": {
			reason: "it is no longer",
			tenant: []corev1.PodCondition{condition(gate, "False")}, host: []corev1.PodCondition{condition(hosts, "True"), foreign},
			want: []corev1.PodCondition{condition(hosts, "False"), foreign},
		},
		"Withdrawn": {
			reason: "what nobody says is not true",
			host:   []corev1.PodCondition{condition(hosts, "True"), foreign}, want: []corev1.PodCondition{foreign},
		},
		"Odd": {
			reason: "only true is true",
			tenant: []corev1.PodCondition{condition(gate, "$patch: replace")}, want: []corev1.PodCondition{condition(hosts, "False")},
		},
		"Said": {
			reason: "it was said before",
			tenant: []corev1.PodCondition{condition(gate, "True")}, host: []corev1.PodCondition{condition(hosts, "True")},
			want: []corev1.PodCondition{condition(hosts, "True")}, silent: true,
		},
		"HostsOwn": {
			reason: "conditions of the host, and those that the space only poses as", silent: true,
			tenant: []corev1.PodCondition{condition("host.example/lb", "False"), condition("PodScheduled", "True"), condition(hosts, "True")},
			host:   []corev1.PodCondition{foreign}, want: []corev1.PodCondition{foreign},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v, host := v.DeepCopy(), made.DeepCopy()
			v.Status.Conditions, host.Status.Conditions = tc.tenant, tc.host
			patch := pod.PatchGates(v, host)
			if (patch == nil) != tc.silent {
				t.Fatalf("%s: the patch is %s", tc.reason, patch)
			}
			if patch == nil {
				patch = []byte("{}")
			}
			expected := host.DeepCopy()
			expected.Status.Conditions = tc.want
			before, err := json.Marshal(host)
			if err != nil {
				t.Fatal(err)
			}
			after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Pod{})
			if err != nil {
				t.Fatal(err)
			}
			got := &corev1.Pod{}
			if err := json.Unmarshal(after, got); err != nil {
				t.Fatal(err)
			}
			byType := cmp.Transformer("byType", func(all []corev1.PodCondition) map[corev1.PodConditionType]corev1.PodCondition {
				out := map[corev1.PodConditionType]corev1.PodCondition{}
				for _, c := range all {
					out[c.Type] = c
				}
				return out
			})
			if diff := cmp.Diff(expected.Status, got.Status, byType); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			if patch := pod.PatchGates(v, got); patch != nil {
				t.Errorf("%s: it is not over: %s", tc.reason, patch)
			}
		})
	}
}
