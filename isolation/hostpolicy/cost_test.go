// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
)

// space is the one whose account writes.
func space() translate.Space {
	return translate.Space{Name: "mine", Nameservers: []string{"10.1.0.10"}}
}

// podOf is a pod as its host gets it, of so many containers, each with so many
// variables of its own, in a namespace of so many services.
func podOf(containers, variables, services int) *corev1.Pod {
	v := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u", Labels: map[string]string{"app": "web", "pod-template-hash": "5f4d"}}}
	v.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
	}}}}}
	for i := range containers {
		c := corev1.Container{
			Name: fmt.Sprintf("c%d", i), Image: "registry.example.com/app:1", Ports: []corev1.ContainerPort{{ContainerPort: 8080}},
			Resources:      corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}},
			VolumeMounts:   []corev1.VolumeMount{{Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}}},
		}
		for j := range variables {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("V%d", j), Value: "v"})
		}
		v.Spec.Containers = append(v.Spec.Containers, c)
	}
	in := pod.Surroundings{}
	for i := range services {
		in.Services = append(in.Services, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("s%d", i)},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.1.0.1", Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
		})
	}
	return pod.ToHost(space(), v, in)
}

// L3: the largest objects that Berth writes are within what a host spends on a
// policy: it would refuse them otherwise.
func TestTheLargestObjectsAreWithinTheHostsBudget(t *testing.T) {
	accounts, pods := newEvaluator(t, hostpolicy.Accounts(), nil), newEvaluator(t, hostpolicy.Pods(), nil)
	closed := space()
	var list string
	for i := range 64 {
		prefix := netip.MustParsePrefix(fmt.Sprintf("203.0.%d.0/24", i))
		closed.Closed = append(closed.Closed, prefix)
		list += "," + prefix.String()
	}
	withClosed := newEvaluator(t, hostpolicy.Accounts(), map[string]string{hostpolicy.AnnotationClosed: list[1:]})
	most := int(bounds.PolicyPeers.Bound().Default)
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}}
	var peers []networkingv1.NetworkPolicyPeer
	for i := range most / 2 { // each is a block of its own, with all that is closed
		peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{fmt.Sprintf("8.%d.%d.0/24", i/256, i%256)}}})
	}
	policy.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: peers}}
	policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}, AddressType: discoveryv1.AddressTypeIPv4}
	for i := range int(bounds.EndpointAddresses.Bound().Default) {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.%d.%d", i/256, i%256)}})
	}
	slice.Ports = []discoveryv1.EndpointPort{{Port: ptr.To(int32(80))}}
	host, _ := space().NetworkPolicy(policy, nil)
	hostClosed, _ := closed.NetworkPolicy(policy, nil)
	for name, w := range map[string]struct {
		by    *evaluator
		write write
	}{
		"a network policy":                         {accounts, of("networking.k8s.io", "networkpolicies", "NetworkPolicy", host)},
		"a network policy, with the host's ranges": {withClosed, of("networking.k8s.io", "networkpolicies", "NetworkPolicy", hostClosed)},
		"an endpoint slice":                        {accounts, of("discovery.k8s.io", "endpointslices", "EndpointSlice", space().EndpointSlice(slice))},
		"a pod of many containers":                 {pods, of("", "pods", "Pod", podOf(250, 10, 0))},
		"a pod of many variables":                  {pods, of("", "pods", "Pod", podOf(10, 2000, 50))},
	} {
		t.Run(name, func(t *testing.T) {
			message, cost := w.by.refuses(w.write)
			if message != "" {
				t.Errorf("refused: %s", message)
			}
			t.Logf("cost %d of %d", cost, celconfig.RuntimeCELCostBudget)
		})
	}
}

func of(group, resource, kind string, object client.Object) write {
	return write{resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, kind: kind, object: object}
}

// BenchmarkPolicyOfPods is what the policy of pods takes of a host for a plain pod,
// with a token and the variables of five services, and how much of it is to convert
// the pod. The processor's time is what counts on a busy machine.
func BenchmarkPolicyOfPods(b *testing.B) {
	for name, policy := range map[string]hostpolicy.Policy{"policy": hostpolicy.Pods(), "none": {}} {
		b.Run(name, func(b *testing.B) { benchmark(b, policy) })
	}
}

func benchmark(b *testing.B, policy hostpolicy.Policy) {
	e, w := newEvaluator(b, policy, nil), of("", "pods", "Pod", podOf(1, 5, 5))
	before := processorTime(b)
	for b.Loop() {
		if message, _ := e.refuses(w); message != "" {
			b.Fatal(message)
		}
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

func processorTime(b *testing.B) int64 {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}
