// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/vcluster/usage"
)

func cpu(amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
}

// versions are one pod after another change each of what may change.
func versions() map[string]*corev1.Pod {
	change := map[string]func(*corev1.Pod){
		"new":     func(*corev1.Pod) {},
		"labeled": func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} },
		"running": func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Ready: true}}
		},
		"succeeded": func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"failed":    func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"resized in the spec": func(p *corev1.Pod) {
			p.Generation, p.Spec.Containers[0].Resources.Requests = 2, cpu("3")
		},
		"resized otherwise, and not written yet": func(p *corev1.Pod) {
			p.Generation, p.Spec.Containers[0].Resources.Requests = 2, cpu("30")
		},
		"a container has more": func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", AllocatedResources: cpu("5")}}
		},
		"a container had more": func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Resources: &corev1.ResourceRequirements{Requests: cpu("6")}}}
		},
		"a sidecar has more": func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "i", AllocatedResources: cpu("7")}}
		},
		"a resize isn't feasible": func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", AllocatedResources: cpu("500m")}}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible}}
		},
		"a resize is deferred": func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", AllocatedResources: cpu("500m")}}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: corev1.PodReasonDeferred}}
		},
	}
	always := corev1.ContainerRestartPolicyAlways
	pods := map[string]*corev1.Pod{}
	for name, change := range change {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", Generation: 1},
			Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{Name: "i", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: cpu("100m")}}},
				Containers:     []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: cpu("1"), Limits: cpu("2")}}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		}
		change(pod)
		pods[name] = pod
	}
	return pods
}

func internal(t *testing.T, pod *corev1.Pod) *core.Pod {
	t.Helper()
	converted := &core.Pod{}
	if err := corev1conversion.Convert_v1_Pod_To_core_Pod(pod.DeepCopy(), converted, nil); err != nil {
		t.Fatal(err)
	}
	return converted
}

func newCalculator() *usage.Calculator { return usage.New(nil, clock.RealClock{}) }

// TestAPodUsesTheSameWheneverItIsAskedAbout because what was added when it was seen is subtracted when it changes.
func TestAPodUsesTheSameWheneverItIsAskedAbout(t *testing.T) {
	all := newCalculator()
	for name, pod := range versions() {
		want, err := newCalculator().Of(pod)
		if err != nil {
			t.Fatal(err)
		}
		kept := usage.Keep(internal(t, pod))
		for range 2 {
			for _, asked := range []struct {
				how string
				of  func() (corev1.ResourceList, error)
			}{
				{"v1", func() (corev1.ResourceList, error) { return all.Of(pod) }},
				{"internal", func() (corev1.ResourceList, error) { return all.Of(internal(t, pod)) }},
				{"kept", func() (corev1.ResourceList, error) { return all.Of(kept) }},
				{"kept, without others", func() (corev1.ResourceList, error) { return newCalculator().Of(kept) }},
			} {
				if used, err := asked.of(); err != nil || !equality.Semantic.DeepEqual(used, want) {
					t.Errorf("%s, %s: uses %v, %v; want %v", name, asked.how, used, err, want)
				}
			}
		}
		if usage.Changes(kept, internal(t, pod)) {
			t.Errorf("%s: what was kept of a pod differs from it", name)
		}
	}
}

// TestAChangeOfUseIsSeen for each pair of versions of a pod that use different amounts, and not for those whose difference doesn't matter.
func TestAChangeOfUseIsSeen(t *testing.T) {
	all := versions()
	for from, before := range all {
		for to, after := range all {
			was, err := newCalculator().Of(before)
			if err != nil {
				t.Fatal(err)
			}
			is, err := newCalculator().Of(after)
			if err != nil {
				t.Fatal(err)
			}
			differs := !equality.Semantic.DeepEqual(was, is)
			v1, unversioned := usage.Changes(before, after), usage.Changes(internal(t, before), internal(t, after))
			written := before.Generation == 1 || after.Generation == 1 || from == to // not both of two resizes are
			if v1 != unversioned || differs && !v1 && written {
				t.Errorf("from %s to %s: uses %v, then %v; seen as a change in v1: %t, in the internal version: %t", from, to, was, is, v1, unversioned)
			}
		}
	}
	for _, same := range []string{"labeled", "running"} {
		if usage.Changes(all["new"], all[same]) {
			t.Errorf("a pod that is %s is calculated anew", same)
		}
	}
}

// TestWhatAPodUsesDoesNotChangeWithThePod that an update changes in place.
func TestWhatAPodUsesDoesNotChangeWithThePod(t *testing.T) {
	pod := internal(t, versions()["a container has more"])
	kept := usage.Keep(pod)
	pod.Status.ContainerStatuses[0].AllocatedResources[core.ResourceCPU] = resource.MustParse("50")
	pod.Spec.Containers[0].Resources.Requests[core.ResourceCPU] = resource.MustParse("60")
	used, err := newCalculator().Of(kept)
	want := resource.MustParse("5100m")
	if got := used[corev1.ResourceRequestsCPU]; err != nil || got.Cmp(want) != 0 {
		t.Errorf("the pod used %s, %v; want %s", got.String(), err, want.String())
	}
}
