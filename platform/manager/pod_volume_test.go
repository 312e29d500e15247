// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/pod"
)

// T9: a pod keeps the volume that it was made with, a difference from the template is told, and the next pod has the
// new one.
func TestAVolumeThatDiffersFromTheTemplateIsTold(t *testing.T) {
	template := func(size string) *appsv1.StatefulSet {
		set, claim := &appsv1.StatefulSet{}, corev1.PersistentVolumeClaim{}
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claim}
		return set
	}
	m := newMovable(t)
	dir := datadir.Dedicated(m.config.DataDir, "moved")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m.pods = &dedicatedPods{Pods: &pod.Pods{}}
	m.processes.add("moved", m.pod, 1)
	check := func(when, want string, differs bool) {
		t.Helper()
		claims, err := m.podClaims("moved")
		if err != nil {
			t.Fatal(err)
		}
		if size := claims[0].Spec.Resources.Requests.Storage().String(); size != want {
			t.Errorf("%s: the volume has %s, want %s", when, size, want)
		}
		if condition := m.volumeCondition("moved"); (condition != nil) != differs {
			t.Errorf("%s: the condition is %+v", when, condition)
		}
	}
	m.pods.DedicatedPods.Template = template("1Gi")
	check("a new pod", "1Gi", false)
	m.pods.DedicatedPods.Template = template("1024Mi")
	check("written otherwise", "1Gi", false)
	m.pods.DedicatedPods.Template = template("2Gi")
	check("after an upgrade", "1Gi", true)
	if err := newIncarnation(dir); err != nil {
		t.Fatal(err)
	}
	check("the next pod", "2Gi", false)
	m.processes.remove("moved")
	if condition := m.volumeCondition("moved"); condition != nil {
		t.Errorf("without a pod: %+v", condition)
	}
}
