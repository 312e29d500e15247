// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// T5, S1, S7: a namespace is the tenant's to make, and takes its host objects along.
func TestANamespaceTakesItsHostObjectsAlong(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	for _, name := range []string{"default", "kube-system"} {
		if _, err := demo.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	ns := demo.namespace(t, "whole")
	if _, err := demo.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), newClaim("data"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	demo.serve(t, ns, newService("web", selecting("web")))
	demo.run(t, ns, newPod("web", claiming("data"), mounting("settings", "password"), makes(t, demo, ns, "settings", "password")))
	claim := await(t, demo.CoreV1().PersistentVolumeClaims(ns).Get, "data", bound)
	hostClaim := must(host.CoreV1().PersistentVolumeClaims(hostNamespace).Get(t.Context(), hostName(ns, "data"), metav1.GetOptions{}))(t)

	demo.kubectl(t, "delete", "namespace", ns, "--wait", "--timeout=90s")

	eventually(t, func() error {
		out := host.kubectl(t, "get", "pods,services,configmaps,secrets,pvc,endpointslices", "-n", hostNamespace, "-l", labelNamespace+"="+ns, "-o", "name")
		return expect("what is left on the host", strings.TrimSpace(out), "")
	})
	awaitGone(t, "host volume", host.CoreV1().PersistentVolumes().Get, hostClaim.Spec.VolumeName)
	awaitGone(t, "volume", demo.CoreV1().PersistentVolumes().Get, claim.Spec.VolumeName)
	if _, err := host.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{}); err == nil {
		t.Error("the tenant's namespace is one of the host's")
	}
}
