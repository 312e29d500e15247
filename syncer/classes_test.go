// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
)

// S2, M4: pods have the priorities and runtimes of the host that are imported, and
// no others.
func TestPodsNameTheClassesThatAreShown(t *testing.T) {
	t.Parallel()
	env := synced(t, "classes")
	priorities, runtimes := env.host.SchedulingV1().PriorityClasses(), env.host.NodeV1().RuntimeClasses()
	priority := func(name string, value int32, labels map[string]string) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Value: value, PreemptionPolicy: ptr.To(corev1.PreemptNever)}
	}
	must(t, priorities.Create, priority("classes-imported", 7, importLabel()))
	must(t, priorities.Create, priority("classes-hidden", 1_000_000, nil))
	must(t, runtimes.Create, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "classes-imported", Labels: importLabel()}, Handler: "of-the-host"})
	t.Cleanup(func() {
		for _, name := range []string{"classes-imported", "classes-hidden"} {
			_ = priorities.Delete(context.Background(), name, metav1.DeleteOptions{})
			_ = runtimes.Delete(context.Background(), name, metav1.DeleteOptions{})
		}
	})
	awaited(t, "see the priority", env.virtual.SchedulingV1().PriorityClasses().Get, "classes-imported", nil)
	class := awaited(t, "see the runtime", env.virtual.NodeV1().RuntimeClasses().Get, "classes-imported", nil)
	if class.Handler != translate.RuntimeHandler {
		t.Errorf("the class tells of the host's handler %q", class.Handler)
	}
	// The tenant makes what it must not have.
	must(t, env.virtual.SchedulingV1().PriorityClasses().Create, priority("classes-hidden", 1_000_000, nil))
	must(t, env.virtual.NodeV1().RuntimeClasses().Create, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Handler: "runc"})

	pod := func(name, priority, runtime string) *corev1.Pod {
		v := newPod(name)
		v.Spec.PriorityClassName = priority
		if runtime != "" {
			v.Spec.RuntimeClassName = &runtime
		}
		return must(t, env.virtual.CoreV1().Pods("default").Create, v)
	}
	hostPods := env.host.CoreV1().Pods(env.space.HostNamespace())
	pod("imported", "classes-imported", "classes-imported")
	host := awaited(t, "see the pod", hostPods.Get, env.hostName("imported"), nil)
	if ptr.Deref(host.Spec.Priority, 0) != 7 || ptr.Deref(host.Spec.RuntimeClassName, "") != "classes-imported" {
		t.Errorf("it has priority %v and runtime %v", host.Spec.Priority, host.Spec.RuntimeClassName)
	}
	pod("hidden", "classes-hidden", "")
	host = awaited(t, "see the pod with a priority of its own", hostPods.Get, env.hostName("hidden"), nil)
	if ptr.Deref(host.Spec.Priority, 0) != 0 || host.Spec.PriorityClassName != "" {
		t.Errorf("it has the host's priority %v", host.Spec.Priority)
	}
	pod("own", "", "own")
	env.awaitWarning(t, "Pod", "own", "spec.runtimeClassName", `"own"`)
	if err := gone(hostPods.Get(t.Context(), env.hostName("own"), metav1.GetOptions{})); err != nil {
		t.Error(err)
	}
}

// S2, M4: a space has of the host's priorities those that its admin allows, and none by which its pods would preempt those of other
// spaces. Its other pods have the default.
func TestPodsHaveThePrioritiesOfTheirSpace(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "priorities")
	ours, theirs := env.virtual.SchedulingV1().PriorityClasses(), env.host.SchedulingV1().PriorityClasses()
	never := ptr.To(corev1.PreemptNever)
	for name, class := range map[string]*schedulingv1.PriorityClass{
		"priorities-allowed": {Value: 5, PreemptionPolicy: never}, "priorities-other": {Value: 6, PreemptionPolicy: never}, "priorities-default": {Value: 3, PreemptionPolicy: never},
		"priorities-preempting": {Value: 7}, "priorities-low": {Value: -1, PreemptionPolicy: never},
	} {
		class.ObjectMeta = metav1.ObjectMeta{Name: name, Labels: importLabel()}
		must(t, theirs.Create, class)
		t.Cleanup(func() { _ = theirs.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
	env.space.Settings.Priorities = translate.Priorities{Allowed: []string{"priorities-allowed", "priorities-preempting", "priorities-low"}, Default: "priorities-default"}
	env.build(t)
	env.begin(nil)
	awaited(t, "see the priority", ours.Get, "priorities-allowed", nil)
	for class, want := range map[string]string{"priorities-allowed": "priorities-allowed", "": "priorities-default"} {
		pod := newPod("of-" + want)
		pod.Spec.PriorityClassName = class
		must(t, env.virtual.CoreV1().Pods("default").Create, pod)
		host := awaited(t, "see the pod", env.host.CoreV1().Pods(env.space.HostNamespace()).Get, env.hostName(pod.Name), nil)
		if host.Spec.PriorityClassName != want || ptr.Deref(host.Spec.PreemptionPolicy, "") != corev1.PreemptNever {
			t.Errorf("a pod of the class %q has %s, %v on the host, want %s", class, host.Spec.PriorityClassName, host.Spec.PreemptionPolicy, want)
		}
	}
	for _, name := range []string{"priorities-other", "priorities-default", "priorities-preempting", "priorities-low"} {
		if err := gone(ours.Get(t.Context(), name, metav1.GetOptions{})); err != nil {
			t.Errorf("the space imports %s: %v", name, err)
		}
	}
}
