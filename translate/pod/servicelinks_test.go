// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

func several(services, ports int) (out []*corev1.Service) {
	for i := range services {
		out = append(out, sample.Wide(fmt.Sprintf("s%d", i), ports))
	}
	return out
}

// L3 (S1): every port of every Service is in every container. Beyond the limit, a
// pod has the variables of the API only, and CheckServiceLinks says why.
func TestHostileServiceLinksAreBounded(t *testing.T) {
	long := several(8, 100)
	for i := range long {
		long[i].Name = strings.Repeat("s", 60) + long[i].Name
		for j := range long[i].Spec.Ports {
			long[i].Spec.Ports[j].Name = strings.Repeat("p", 55) + long[i].Spec.Ports[j].Name
		}
	}
	manyPorts := sample.APIService()
	manyPorts.Spec.Ports = sample.Wide("any", 100).Spec.Ports
	const api, port = 8, 503 // variables of the API, and of a service with 100 named ports
	cases := map[string]struct {
		reason     string
		in         sample.Surroundings
		containers int
		own        string // an argument of each container
		want       int    // variables of a container
		exceeds    bounds.Quantity
	}{
		"Usual":       {"", sample.Surroundings{API: sample.APIService(), Services: several(2, 3)}, 4, "", api + 2*18, -1},
		"Most":        {"", sample.Surroundings{API: sample.APIService(), Services: several(9, 100)}, 1, "", api + 9*port, -1},
		"Containers":  {"the product counts", sample.Surroundings{API: sample.APIService(), Services: several(9, 100)}, 2, "", api, bounds.ServiceLinkVariables},
		"Services":    {"", sample.Surroundings{API: sample.APIService(), Services: several(50_000, 1)}, 1, "", api, bounds.ServiceLinkVariables},
		"OlderStores": {"as many as brought a process down: none of them counts, as none is on the host", sample.Surroundings{API: sample.APIService(), Services: several(12, 9000)}, 200, "", api, -1},
		"Bytes":       {"the names may be long", sample.Surroundings{API: sample.APIService(), Services: long}, 1, strings.Repeat("x", 700<<10), api, bounds.PodBytes},
		"API":         {"a tenant may give it ports: they are empty then", sample.Surroundings{API: manyPorts, Services: several(1, 1)}, 250, "", api, bounds.ServiceLinkVariables},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := sample.PlainPod()
			for i := range tc.containers {
				v.Spec.InitContainers = append(v.Spec.InitContainers, corev1.Container{Name: fmt.Sprintf("i%d", i), Args: []string{tc.own}})
			}
			v.Spec.Containers = nil
			host := pod.ToHost(sample.Demo(), v, tc.in)
			for i, c := range host.Spec.InitContainers {
				if len(c.Env) != tc.want {
					t.Fatalf("%s: container %d has %d variables, want %d", tc.reason, i, len(c.Env), tc.want)
				}
			}
			err := pod.CheckServiceLinks(v, tc.in)
			var exceeded *bounds.ExceededError
			if errors.As(err, &exceeded) != (tc.exceeds >= 0) || exceeded != nil && exceeded.Quantity != tc.exceeds {
				t.Errorf("%s: the tenant is told %v", tc.reason, err)
			}
		})
	}
}

// L3 (S1): whatever a tenant writes, what the host is sent grows as its pod does,
// and by no more than the limit for the variables of Services.
func TestHostileAHostPodIsNotMuchLargerThanItsPod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := sample.TenantPod(t)
		in := sample.AnySurroundings(t, v.Namespace)
		in.Services = append(in.Services, several(rapid.IntRange(0, 200).Draw(t, "services"), rapid.SampledFrom([]int{1, 10, 100, 1000}).Draw(t, "ports"))...)
		for i := range rapid.IntRange(0, 249).Draw(t, "more containers") {
			v.Spec.Containers = append(v.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Image: "i"})
		}
		host := pod.ToHost(sample.Demo(), v, in)
		variables, links := 0, 0
		for _, list := range [][]corev1.Container{host.Spec.InitContainers, host.Spec.Containers} {
			for i := range list {
				variables += len(list[i].Env)
				for j := range list[i].Env {
					links += list[i].Env[j].Size() + 4
				}
			}
		}
		if variables > bounds.ServiceLinkVariables.Max()+10*250 {
			t.Fatalf("%d variables", variables)
		}
		if size, most := host.Size()-links, 20*v.Size()+4096; size > most {
			t.Fatalf("a pod of %d bytes becomes one of %d besides links, more than %d", v.Size(), size, most)
		}
		if size := host.Size(); size > 20*v.Size()+4096+bounds.PodBytes.Max() {
			t.Fatalf("a pod of %d bytes becomes one of %d", v.Size(), size)
		}
	})
}

// L3 (S1): containers without variables of their own share those of Services, and
// none writes into another's.
func TestContainersShareTheVariablesOfServices(t *testing.T) {
	v := sample.PlainPod()
	own := corev1.EnvVar{Name: "OWN", Value: "1"}
	v.Spec.Containers = []corev1.Container{{Name: "a"}, {Name: "b"}, {Name: "c", Env: []corev1.EnvVar{own}}, {Name: "d", Env: []corev1.EnvVar{{Name: "OTHER"}}}}
	host := pod.ToHost(sample.Demo(), v, sample.Surroundings{API: sample.APIService()})
	c := host.Spec.Containers
	if &c[0].Env[0] != &c[1].Env[0] || cap(c[0].Env) != len(c[0].Env) {
		t.Error("containers do not share, or may write beyond what they share")
	}
	if len(c[0].Env) != 8 || c[2].Env[8] != own || c[3].Env[8].Name != "OTHER" {
		t.Errorf("%v\n%v\n%v", c[0].Env, c[2].Env, c[3].Env)
	}
}

// L3 (S1): what a pod may have, with the field named.
func TestHostilePodsOfTooManyPartsAreRefused(t *testing.T) {
	containers := func(n int) (out []corev1.Container) { return make([]corev1.Container, n) }
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"Most": {func(p *corev1.Pod) { p.Spec.Containers = containers(250) }, ""},
		"Containers": {func(p *corev1.Pod) {
			p.Spec.Containers, p.Spec.InitContainers, p.Spec.EphemeralContainers = containers(200), containers(50), make([]corev1.EphemeralContainer, 1)
		}, "spec.containers: Invalid value: 251: 251 containers, at most 250 are possible (limit pod-containers)"},
		"Gates":  {func(p *corev1.Pod) { p.Spec.ReadinessGates = make([]corev1.PodReadinessGate, 101) }, "spec.readinessGates: Invalid value: 101"},
		"Size":   {func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{strings.Repeat("x", 1<<20)} }, "spec: Forbidden: the pod's encoded size on the host is above 1048576 bytes (limit pod-bytes)"},
		"Labels": {func(p *corev1.Pod) { p.Labels = map[string]string{"a": strings.Repeat("x", 1<<20)} }, "limit pod-bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			v := sample.PlainPod()
			tc.change(v)
			errs := pod.Check(&v.ObjectMeta, &v.Spec)
			if got := fmt.Sprint(errs.ToAggregate()); (len(errs) > 0) != (tc.want != "") || !strings.Contains(got, tc.want) {
				t.Errorf("refused are %s, want %q", got, tc.want)
			}
		})
	}
	v := sample.PlainPod()
	v.Spec.Containers[0].Args = []string{strings.Repeat("x", bounds.PodBytes.Max()-v.Size()-100)}
	if errs := pod.Check(&v.ObjectMeta, &v.Spec); len(errs) > 0 {
		t.Errorf("refused in the space: %v", errs)
	}
	host := pod.ToHost(sample.Demo(), v, sample.Surroundings{API: sample.APIService()})
	host.Annotations["more"] = strings.Repeat("x", 1000)
	if errs := pod.CheckHost(host); len(errs) != 1 || errs[0].Field != "spec" {
		t.Errorf("what became too large is sent: %v", errs)
	}
}

// M4 (S1, S4): ports of a Service.
func TestHostileServicesOfTooManyPortsAreRefused(t *testing.T) {
	if errs := translate.CheckService(&sample.Wide("a", 100).Spec); len(errs) > 0 {
		t.Error(errs)
	}
	errs := translate.CheckService(&sample.Wide("a", 9000).Spec)
	const want = "spec.ports: Invalid value: 9000: 9000 ports, at most 100 are possible (limit service-ports): spread them over several Services"
	if len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("got %v, want %s", errs, want)
	}
}

// S4: what was stored before there was a bound is pushed in time linear in it.
func TestPortsKeepTheirNodePortsByNumberAndProtocol(t *testing.T) {
	have, want := sample.Wide("a", 4), sample.Wide("a", 4)
	have.Spec.Type, want.Spec.Type = corev1.ServiceTypeNodePort, corev1.ServiceTypeNodePort
	for i := range have.Spec.Ports {
		have.Spec.Ports[i].NodePort = int32(30000 + i)
	}
	have.Spec.Ports[1].Protocol = corev1.ProtocolUDP
	want.Spec.Ports[3].NodePort = 31000 // asked for
	want.Spec.Ports = append(want.Spec.Ports, corev1.ServicePort{Port: 99, AppProtocol: ptr.To("http")})
	translate.PushService(want, have)
	var got []int32
	for _, p := range have.Spec.Ports {
		got = append(got, p.NodePort)
	}
	if fmt.Sprint(got) != "[30000 0 30002 31000 0]" {
		t.Errorf("node ports are %v", got)
	}
}
