// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/kubelet/envvars"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// containerEnv is what a process finds in its environment when a kubelet starts
// a container with variables of plain values: they are expanded in order from
// those before them and from the services, and override services.
func containerEnv(env []corev1.EnvVar, services []*corev1.Service) map[string]string {
	links, result := map[string]string{}, map[string]string{}
	for _, e := range envvars.FromServices(services) {
		links[e.Name] = e.Value
	}
	for _, e := range env {
		result[e.Name] = expansion.Expand(e.Value, expansion.MappingFuncFor(result, links))
	}
	for name, value := range links {
		if _, set := result[name]; !set {
			result[name] = value
		}
	}
	return result
}

// linked are the services that a kubelet tells a pod of: the API's always, those
// of its namespace if it wants them, none without an address.
func linked(v *corev1.Pod, in sample.Surroundings) []*corev1.Service {
	out := []*corev1.Service{in.API}
	for _, service := range in.Services {
		usable := service.Spec.ClusterIP != "" && service.Spec.ClusterIP != corev1.ClusterIPNone && len(service.Spec.Ports) > 0
		if usable && ptr.Deref(v.Spec.EnableServiceLinks, true) {
			out = append(out, service)
		}
	}
	return out
}

// hostAPI is the service that a host's kubelet tells every pod of.
func hostAPI() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}}},
	}
}

// S4, N1: the environment is the one of a cluster of the space's own, to the
// variable, and the host's API is not in it.
func TestAProcessFindsTheEnvironmentOfAClusterOfItsOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := sample.PlainPod()
		v.Namespace = sample.Of(t, "namespace", "default", "team-a")
		v.Spec.EnableServiceLinks = sample.Maybe(t, "links", true, false)
		for range rapid.IntRange(0, 5).Draw(t, "variables") {
			v.Spec.Containers[0].Env = append(v.Spec.Containers[0].Env, corev1.EnvVar{
				Name: sample.Of(t, "name", "A", "B", "DB_SERVICE_HOST", "KUBERNETES_SERVICE_HOST"),
				Value: sample.Of(t, "value", "", "x", "$(A)", "$(B)$(A)", "$(DB_SERVICE_HOST):$(DB_SERVICE_PORT)", "$$(A)", "$(NONE)",
					"https://$(KUBERNETES_SERVICE_HOST)", "$(A", "$"),
			})
		}
		in := sample.Surroundings{API: sample.APIService()}
		for _, name := range []string{"db", "web-app"} {
			if rapid.Bool().Draw(t, name) {
				in.Services = append(in.Services, sample.AnyService(t, v.Namespace, name))
			}
		}
		if v.Namespace == metav1.NamespaceDefault {
			in.Services = append(in.Services, in.API) // as a list of its namespace has it
		}
		v.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "busybox", Env: v.Spec.Containers[0].Env}}
		want := containerEnv(v.Spec.Containers[0].Env, linked(v, in))
		host := pod.ToHost(sample.Demo(), v, in)
		for _, c := range []corev1.Container{host.Spec.Containers[0], host.Spec.InitContainers[0]} {
			if diff := cmp.Diff(want, containerEnv(c.Env, []*corev1.Service{hostAPI()})); diff != "" {
				t.Fatalf("%s: -in a cluster of its own +on the host:\n%s", c.Name, diff)
			}
		}
	})
}

// N1: whatever services there are, and whatever the pod asks for, no variable
// tells where the host's API is.
func TestNoVariableTellsOfTheHostsAPI(t *testing.T) {
	lookalike := func(namespace, name string, port int32) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.1.0.66", Ports: []corev1.ServicePort{{Port: port}}},
		}
	}
	otherPort := sample.APIService()
	otherPort.Spec.Ports[0].Port, otherPort.Spec.Ports[0].Name = 7443, "api"
	cases := map[string]struct {
		reason     string
		namespace  string
		in         sample.Surroundings
		host, port string
	}{
		"API":       {"the space's own", "default", sample.Surroundings{API: sample.APIService()}, "10.1.0.1", "443"},
		"OtherPort": {"the host's variables have other names then", "default", sample.Surroundings{API: otherPort}, "10.1.0.1", "7443"},
		"NoAPI":     {"not yet made: empty is \"not in a cluster\" for clients", "default", sample.Surroundings{}, "", ""},
		"NoLinks":   {"an unusable one is as good as none", "default", sample.Surroundings{API: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}}}, "", ""},
		"Lookalike": {
			"whose name makes variables of the API's name", "default",
			sample.Surroundings{API: sample.APIService(), Services: []*corev1.Service{lookalike("default", "kubernetes-service", 6666)}}, "10.1.0.1", "443",
		},
		"OwnKubernetes": {
			"a namespace's own service of that name counts more, as it does for a kubelet", "team-a",
			sample.Surroundings{API: sample.APIService(), Services: []*corev1.Service{lookalike("team-a", "kubernetes", 6666)}}, "10.1.0.66", "6666",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := sample.PlainPod()
			v.Namespace = tc.namespace
			got := containerEnv(pod.ToHost(sample.Demo(), v, tc.in).Spec.Containers[0].Env, []*corev1.Service{hostAPI()})
			if got["KUBERNETES_SERVICE_HOST"] != tc.host || got["KUBERNETES_SERVICE_PORT"] != tc.port {
				t.Errorf("%s: the API is said to be at %q port %q", tc.reason, got["KUBERNETES_SERVICE_HOST"], got["KUBERNETES_SERVICE_PORT"])
			}
			sample.CheckSilent(t, got, hostAPI().Spec.ClusterIP)
		})
	}
}

// S3: what the environment refers to is the object of the pod's own namespace.
func TestTheEnvironmentRefersToHostObjects(t *testing.T) {
	v := sample.PlainPod()
	name := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	v.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
		{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: name("cfg")}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: name("other--default--cfg"), Optional: ptr.To(true)}},
	}
	v.Spec.Containers[0].Env = []corev1.EnvVar{
		{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: name("cfg"), Key: "k"}}},
		{Name: "B", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: name("sec"), Key: "k"}}},
	}
	want := v.Spec.Containers[0].DeepCopy()
	want.EnvFrom[0].ConfigMapRef.Name = "demo--default--cfg"
	want.EnvFrom[1].SecretRef.Name = "demo--default--other--default--cfg"
	want.Env[0].ValueFrom.ConfigMapKeyRef.Name = "demo--default--cfg"
	want.Env[1].ValueFrom.SecretKeyRef.Name = "demo--default--sec"
	got := pod.ToHost(sample.Demo(), v, sample.Surroundings{}).Spec.Containers[0]
	got.Env = got.Env[len(got.Env)-2:] // behind those of the API
	if diff := cmp.Diff(*want, got); diff != "" {
		t.Errorf("container: -want +got:\n%s", diff)
	}
}
