// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// N1, N2, M1, M2: the objects that only Berth writes are refused to tenants,
// whoever a tenant, who is admin of its space, pretends to be.
func TestHostileIdentitiesWriteNothingOfTheHosts(t *testing.T) {
	t.Parallel()
	demo := sharedBerth(t).demo(t)
	ns := demo.namespace(t, "only-berth-writes")
	// One that waits, as the claim it wants is not there.
	waiting := newPod("waiting", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "missing"},
		}}}
	})
	if _, err := demo.CoreV1().Pods(ns).Create(t.Context(), waiting, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	for name, as := range map[string]*cluster{
		"admin":          demo,
		"the API server": demo.as(t, "system:apiserver", "system:masters"),
		"the scheduler":  demo.as(t, "system:kube-scheduler", "system:masters"),
		"a node":         demo.as(t, "system:node:node-0123456789ab", "system:masters", "system:nodes"),
		"the syncer":     demo.as(t, "system:serviceaccount:berth-demo:berth-syncer", "system:masters"),
	} {
		t.Run("as "+name, func(t *testing.T) {
			_, err := as.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{})
			refused(t, "creating a node", err, "nodes")

			err = as.CoreV1().Pods(ns).Bind(t.Context(), &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: "waiting"}, Target: corev1.ObjectReference{Kind: "Node", Name: "host-node-1"},
			}, metav1.CreateOptions{})
			unserved(t, "binding a pod", err, "pods/binding")
			err = as.CoreV1().RESTClient().Post().Namespace(ns).Resource("bindings").Body(&corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: "waiting"}, Target: corev1.ObjectReference{Kind: "Node", Name: "host-node-1"},
			}).Do(t.Context()).Error()
			unserved(t, "binding a pod as clients of old do", err, "bindings")

			_, err = as.CoreV1().Pods(ns).Create(t.Context(), newPod("placed", func(p *corev1.Pod) { p.Spec.NodeName = "host-node-1" }), metav1.CreateOptions{})
			refused(t, "a pod with a node's name", err, "spec.nodeName")
		})
	}
}

// N2: what a tenant writes into a pod's status does not stay, nor reach the host.
func TestHostileStatusOfAPodDoesNotStay(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "own-status")
	pod := demo.run(t, ns, newPod("honest"))
	forged := pod.DeepCopy()
	forged.ResourceVersion = "" // whatever others write meanwhile
	forged.Status.HostIPs = []corev1.HostIP{{IP: "192.0.2.1"}}
	forged.Status.HostIP, forged.Status.PodIP, forged.Status.PodIPs = "192.0.2.1", "169.254.169.254", []corev1.PodIP{{IP: "169.254.169.254"}}
	forged.Status.Phase = corev1.PodFailed
	if _, err := demo.CoreV1().Pods(ns).UpdateStatus(t.Context(), forged, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, demo.CoreV1().Pods(ns).Get, "honest", func(p *corev1.Pod) error {
		return expect("status of the pod", p.Status.PodIP+" "+p.Status.HostIP+" "+string(p.Status.Phase), pod.Status.PodIP+" "+pod.Status.PodIP+" Running")
	})
	h := must(host.CoreV1().Pods(hostNamespace).Get(t.Context(), hostName(ns, "honest"), metav1.GetOptions{}))(t)
	if h.Status.Phase != corev1.PodRunning || h.Status.PodIP != pod.Status.PodIP {
		t.Errorf("host pod is %s with address %s, want Running with %s", h.Status.Phase, h.Status.PodIP, pod.Status.PodIP)
	}
}

// N1: a host tells each pod its node's zone by a label. A tenant's selector that
// asks for it finds nothing, and one that asks for the tenant's own label finds
// the tenant's.
func TestHostileSelectorsFindNoZone(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "zones")
	pod := demo.run(t, ns, newPod("placed", func(p *corev1.Pod) { p.Labels = map[string]string{corev1.LabelTopologyZone: "mine"} }))
	var zone string
	await(t, host.CoreV1().Pods(hostNamespace).Get, hostName(ns, "placed"), func(h *corev1.Pod) error {
		if zone = h.Labels[corev1.LabelTopologyZone]; zone == "" {
			return errors.New("the host tells the pod no zone")
		}
		return expect("the tenant's label", h.Labels["berth.dev/zone"], "mine")
	})
	for name, zone := range map[string]string{"hosts": zone, "mine": "mine"} {
		demo.serve(t, ns, newService(name, func(s *corev1.ServiceSpec) { s.Selector = map[string]string{corev1.LabelTopologyZone: zone} }))
	}
	host.awaitEndpoints(t, hostNamespace, hostName(ns, "mine"), []string{pod.Status.PodIP})
	await(t, host.CoreV1().Endpoints(hostNamespace).Get, hostName(ns, "hosts"), func(e *corev1.Endpoints) error { //nolint:staticcheck // its controller has then looked for pods, which slices do not tell
		return expect("subsets of the service that asks for the host's zone", len(e.Subsets), 0)
	})
	host.awaitEndpoints(t, hostNamespace, hostName(ns, "hosts"), nil)
}
