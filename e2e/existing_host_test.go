// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// X3: the host may be a cluster that is there already: here, that of another
// berth, reached over the network as any is.
func TestUpUsesTheClusterOfAKubeconfig(t *testing.T) {
	t.Parallel()
	existing := sharedBerth(t)
	hostKubeconfig := filepath.Join(existing.dir, "host.kubeconfig")
	b := start(t, "--host-kubeconfig", hostKubeconfig, "--space", "guest")
	if out := b.output(); strings.Contains(out, "simulated") || !strings.Contains(out, "The host is https://") {
		t.Errorf("berth up says of its host:\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "host.kubeconfig")); !os.IsNotExist(err) {
		t.Errorf("berth up writes a kubeconfig of a host that is not its own: %v", err)
	}

	pod := b.space(t, "guest").run(t, "default", newPod("visitor"))
	host := existing.host(t)
	h := must(host.CoreV1().Pods("berth-guest").Get(t.Context(), "guest--default--visitor", metav1.GetOptions{}))(t)
	if h.Annotations[annotationUID] != string(pod.UID) || h.Spec.NodeName == "" {
		t.Errorf("host pod records %v on node %q, want %s on a node", identityOf(h), h.Spec.NodeName, pod.UID)
	}
	v := b.space(t, "guest").serve(t, "default", newService("reachable"))
	service := must(host.CoreV1().Services("berth-guest").Get(t.Context(), "guest--default--reachable", metav1.GetOptions{}))(t)
	if v.Spec.ClusterIP != service.Spec.ClusterIP {
		t.Errorf("service has address %s, on the host %s", v.Spec.ClusterIP, service.Spec.ClusterIP)
	}

	// Its pods run on while Berth does not.
	b.stop(t, syscall.SIGTERM)
	if still := host.awaitRunning(t, "berth-guest", h.Name); still.UID != h.UID {
		t.Error("the host pod went with berth")
	}
	if err := host.CoreV1().Pods("berth-guest").Delete(t.Context(), h.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, "host pod", host.CoreV1().Pods("berth-guest").Get, h.Name)
	b.up(t, "--host-kubeconfig", hostKubeconfig, "--space", "guest")
	// What happened meanwhile is seen: the pod is gone, as from a lost node.
	awaitGone(t, "pod", b.space(t, "guest").CoreV1().Pods("default").Get, "visitor")
}
