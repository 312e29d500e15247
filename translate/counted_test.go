// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-dev/berth/translate"
)

// Q4 (finding B17): pods may request what the quota counts, and nothing that only looks like it.
func TestWhatAQuotaCountsMayBeRequested(t *testing.T) {
	quota := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{
		"pods", "requests.cpu", "limits.memory", "requests.storage", "count/pods", "cpu", "requests.ephemeral-storage",
		"requests.example.com/gpu", "example.com/fpga", "requests.requests.example.com/x", "requests.example.kubernetes.io/x",
		"requests.hugepages-2Mi", "hugepages-2Mi", "hugepages-1Gi", "limits.hugepages-64Ki",
		"requests.deviceclass.resource.kubernetes.io/fast", "gpu.example.com.deviceclass.resource.k8s.io/devices",
		"gold.storageclass.storage.k8s.io/requests.storage",
	} {
		quota[name] = resource.MustParse("0")
	}
	want := translate.Counted{
		"deviceclass.resource.kubernetes.io/fast", "deviceclass.resource.kubernetes.io/gpu.example.com", "example.com/gpu",
		"gpu.example.com.deviceclass.resource.k8s.io/devices", "hugepages-1Gi", "hugepages-2Mi",
	}
	got := translate.CountedBy(quota)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for name, allowed := range map[corev1.ResourceName]bool{"cpu": true, "memory": true, "ephemeral-storage": true, "example.com/gpu": true, "example.com/fpga": false, "hugepages-64Ki": false, "gpu.example.com.deviceclass.resource.k8s.io/devices": false} {
		if got.Allows(name) != allowed {
			t.Errorf("Allows(%s) is %v", name, !allowed)
		}
	}
	if !got.AllowsClass("gpu.example.com") || got.AllowsClass("fast") {
		t.Error("claims may request devices of the classes whose claims are counted, and of no others")
	}
	if diff := cmp.Diff([]string{
		"deviceclass.resource.kubernetes.io/fast", "deviceclass.resource.kubernetes.io/gpu.example.com", "example.com/gpu", "class:gpu.example.com", "hugepages-1Gi", "hugepages-2Mi",
	}, got.Strings()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if none := translate.CountedBy(nil); none.Allows("example.com/gpu") || !none.Allows("cpu") {
		t.Error("without a quota, only what all pods may request is allowed")
	}
}
