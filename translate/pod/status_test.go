// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// runningPod is a pod of a tenant's and its host pod, with a status as a kubelet
// and the host's controllers write it.
func runningPod() (v, host *corev1.Pod) {
	v, host = scheduledPod("kind-worker")
	started := metav1.NewTime(time.Unix(1700000000, 0))
	status := &host.Status
	status.Phase, status.QOSClass, status.StartTime = corev1.PodRunning, corev1.PodQOSBestEffort, &started
	status.NominatedNodeName = "kind-worker2"
	status.Message, status.Reason = "Node kind-worker which was running pod demo--default--web is unresponsive", "NodeLost"
	status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: started},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: started, ObservedGeneration: 4},
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet", Message: "10.244.1.1 is short of memory"},
	}
	status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "web", Image: "nginx", ImageID: "sha256:1", ContainerID: "containerd://2", RestartCount: 3,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "back-off 5m0s restarting failed container=web pod=demo--default--web_berth-demo(0a1b2c3d-host-uid)",
		}},
		LastTerminationState:     corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: "no route to 10.96.0.1 from kind-worker"}},
		AllocatedResourcesStatus: []corev1.ResourceStatus{{Name: "example.com/gpu", Resources: []corev1.ResourceHealth{{ResourceID: "gpu-7-of-kind-worker"}}}},
	}}
	return v, host
}

// N1, N2: a status, whole, as the tenant gets it.
func TestPullPodStatusTellsWhatContainersDo(t *testing.T) {
	v, host := runningPod()
	started := metav1.NewTime(time.Unix(1700000000, 0))
	want := corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBestEffort, StartTime: &started,
		Reason: "NodeLost", Message: "the node of the pod does not respond",
		NominatedNodeName: sample.Demo().NodeAlias("kind-worker2"),
		PodIP:             "10.244.1.15", PodIPs: []corev1.PodIP{{IP: "10.244.1.15"}, {IP: "fd00:244::15"}},
		HostIP: "10.244.1.15", HostIPs: []corev1.HostIP{{IP: "10.244.1.15"}, {IP: "fd00:244::15"}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: started},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: started},
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet", Message: "the node of the pod terminated it"},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "web", Image: "nginx", ImageID: "sha256:1", ContainerID: "containerd://2", RestartCount: 3,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "CrashLoopBackOff", Message: "back-off 5m0s restarting failed container=web pod=web_default(v-uid)",
			}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 128, Reason: "StartError", Message: "the host could not start a container of the pod; it retries",
			}},
		}},
	}
	if diff := cmp.Diff(want, pod.PullStatus(sample.Demo(), v, host)); diff != "" {
		t.Errorf("status: -want +got:\n%s", diff)
	}
}

// S4: a status tells of the resources that its container asks for: those that the
// space's LimitRange adds are in no spec of the space.
func TestPullPodStatusOfResources(t *testing.T) {
	list := func(names ...corev1.ResourceName) corev1.ResourceList {
		var out corev1.ResourceList
		for _, name := range names {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[name] = resource.MustParse("1")
		}
		return out
	}
	const cpu, memory, disk = corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage
	for reason, tc := range map[string]struct{ requests, limits []corev1.ResourceName }{
		"nothing":  {},
		"requests": {requests: []corev1.ResourceName{cpu}},
		"limits":   {requests: []corev1.ResourceName{cpu, memory}, limits: []corev1.ResourceName{memory}},
		"all":      {requests: []corev1.ResourceName{cpu, memory, disk}, limits: []corev1.ResourceName{cpu, memory, disk}},
	} {
		v, host := runningPod()
		asked := corev1.ResourceRequirements{Requests: list(tc.requests...), Limits: list(tc.limits...)}
		v.Spec.Containers[0].Resources = asked
		host.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Requests: list(cpu, memory, disk), Limits: list(cpu, memory, disk)}
		host.Status.ContainerStatuses[0].AllocatedResources = list(cpu, memory, disk)
		got := pod.PullStatus(sample.Demo(), v, host).ContainerStatuses[0]
		if diff := cmp.Diff(&asked, got.Resources) + cmp.Diff(asked.Requests, got.AllocatedResources); diff != "" {
			t.Errorf("a container that asks for %s: -want +got:\n%s", reason, diff)
		}
	}
}

func TestPullPodStatusOfConditions(t *testing.T) {
	const gate = "example.com/gate"
	type args struct{ tenant, host []corev1.PodCondition }
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	gated := corev1.PodCondition{Type: gate, Status: corev1.ConditionTrue}
	cases := map[string]struct {
		reason string
		args   args
		gates  bool
		want   []corev1.PodCondition
	}{
		"Unschedulable": {
			reason: "the scheduler's message counts nodes and quotes their taints",
			args: args{host: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
				Message: "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {dedicated: gpu}.",
			}}},
			want: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no node fits the pod now: insufficient cpu",
			}},
		},
		"OfOthers": {
			reason: "a controller of the host's writes what it likes, about the host",
			args:   args{host: []corev1.PodCondition{ready, {Type: "target-health.elb.example.com/k8s-demo", Status: corev1.ConditionTrue, Message: "zone eu-1"}}},
			want:   []corev1.PodCondition{ready},
		},
		"OwnStay": {
			reason: "conditions of readiness gates are set in the space",
			args:   args{tenant: []corev1.PodCondition{gated}, host: []corev1.PodCondition{ready}},
			gates:  true,
			want:   []corev1.PodCondition{ready, gated},
		},
		"StaleGo": {
			reason: "a condition of the host's that is gone there",
			args:   args{tenant: []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}, ready}, host: []corev1.PodCondition{ready}},
			want:   []corev1.PodCondition{ready},
		},
		"DisruptionStays": {
			reason: "the space's eviction API sets it, too",
			args:   args{tenant: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}, host: []corev1.PodCondition{ready}},
			want:   []corev1.PodCondition{ready, {Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}},
		},
		"OfATenantsControllers": {
			reason: "as on a cluster, anyone may say something of a pod",
			args:   args{tenant: []corev1.PodCondition{gated}, host: []corev1.PodCondition{ready}},
			want:   []corev1.PodCondition{ready, gated},
		},
		"GateTheHostHasNotSeen": {
			reason: "its kubelet names the gate otherwise",
			args: args{tenant: []corev1.PodCondition{gated}, host: []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady",
				Message: `corresponding condition of pod readiness gate "gate.berth.dev/x" does not exist.`,
			}}},
			gates: true,
			want: []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady", Message: "the pod's readiness gates are not met yet",
			}, gated},
		},
		"ResizeTooLarge": {
			reason: "a kubelet tells what its node has",
			args: args{host: []corev1.PodCondition{{
				Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible,
				Message: "Node didn't have enough capacity: cpu, requested: 100000, capacity: 4000",
			}}},
			want: []corev1.PodCondition{{
				Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible,
				Message: "the pod's new resources do not fit on its node; request less, or delete the pod and create it again",
			}},
		},
		"ResizeLater": {
			reason: "and what others on it use",
			args: args{host: []corev1.PodCondition{{
				Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred,
				Message: "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000",
			}}},
			want: []corev1.PodCondition{{
				Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred,
				Message: "the pod's new resources do not fit on its node now; the host retries",
			}},
		},
		"GateNotMet": {
			reason: "the host knows no readiness gates, and calls the pod ready",
			args:   args{host: []corev1.PodCondition{ready}},
			gates:  true,
			want: []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady",
				Message: "condition " + gate + " of the pod's readiness gates is not True",
			}},
		},
		"GateOfTheHosts": {
			reason: "only the space answers the tenant's gates",
			args:   args{host: []corev1.PodCondition{ready, gated}},
			gates:  true,
			want: []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady",
				Message: "condition " + gate + " of the pod's readiness gates is not True",
			}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v, host := scheduledPod("kind-worker")
			if tc.gates {
				v.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
			}
			v.Status.Conditions, host.Status.Conditions = tc.args.tenant, tc.args.host
			if diff := cmp.Diff(tc.want, pod.PullStatus(sample.Demo(), v, host).Conditions); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// The generation that a status is about is the space's, once the host's kubelet
// has caught up with the host's.
func TestPullPodStatusCountsTheSpacesGenerations(t *testing.T) {
	cases := map[string]struct {
		reason           string
		generation, seen int64
		want             int64
	}{
		"CaughtUp": {"the kubelet saw the newest spec", 4, 4, 7},
		"Behind":   {"what was true before stays true", 4, 3, 6},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v, host := runningPod()
			v.Generation, v.Status.ObservedGeneration = 7, 6
			host.Generation, host.Status.ObservedGeneration = tc.generation, tc.seen
			if got := pod.PullStatus(sample.Demo(), v, host).ObservedGeneration; got != tc.want {
				t.Errorf("%s: observed %d, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

// What a process leaves as its last words may be data: only what it can not know
// of itself is replaced.
func TestPullPodStatusLeavesTheLastWordsOfProcesses(t *testing.T) {
	words := map[string]string{ // by the reason of the termination
		"Completed": `[{"key":"address","value":"10.1.0.9:80"}]`, "Error": "dial tcp 10.1.0.9:5432: refused", "OOMKilled": "at 10.1.0.9",
	}
	for reason, message := range words {
		v, host := runningPod()
		host.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, Message: message + " in demo--default--web"}}
		if got := pod.PullStatus(sample.Demo(), v, host).ContainerStatuses[0].State.Terminated.Message; got != message+" in web" {
			t.Errorf("%s: %q", reason, got)
		}
	}
}

// N1: of any status, none of the host's names, addresses and counts is left; and
// pulling it again, onto itself, changes nothing, or the engine would write for
// ever.
func TestAnyPulledStatusIsSilentAndStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, host := scheduledPod("kind-worker")
		sample.Fill(t, reflect.ValueOf(&host.Status).Elem(), 6)
		secrets := []string{"kind-worker", "10.244.1.1", "fd00:244::1", "0a1b2c3d-host-uid", "demo--default--web", "berth-demo"}
		tell := func(what *string) { *what = "x " + sample.Of(t, "secret", secrets...) + " y" }
		host.Status.HostIP = "10.244.1.1"
		host.Status.HostIPs = []corev1.HostIP{{IP: "fd00:244::1"}}
		host.Status.Conditions = append(host.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady}, corev1.PodCondition{Type: "example.com/of-others"})
		host.Status.ContainerStatuses = append(host.Status.ContainerStatuses, corev1.ContainerStatus{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{}, Terminated: &corev1.ContainerStateTerminated{Reason: "StartError"},
		}})
		// Every message, but none of what the tenant named itself.
		tell(&host.Status.Message)
		for i := range host.Status.Conditions {
			tell(&host.Status.Conditions[i].Message)
		}
		host.Status.PodIP, host.Status.PodIPs = "10.244.1.15", nil
		for _, list := range [][]corev1.ContainerStatus{host.Status.InitContainerStatuses, host.Status.ContainerStatuses, host.Status.EphemeralContainerStatuses} {
			for i := range list {
				for _, state := range []*corev1.ContainerState{&list[i].State, &list[i].LastTerminationState} {
					if state.Waiting != nil {
						tell(&state.Waiting.Message)
					}
					if state.Terminated != nil {
						state.Terminated.Reason = "StartError"
						tell(&state.Terminated.Message)
					}
				}
			}
		}
		before := host.DeepCopy()
		got := pod.PullStatus(sample.Demo(), v, host)
		if diff := cmp.Diff(before, host); diff != "" {
			t.Fatalf("the argument changed: -before +after:\n%s", diff)
		}
		sample.CheckNoSharedMemory(t, host, &got)
		messages := []string{got.Message}
		for _, c := range got.Conditions {
			messages = append(messages, c.Message)
		}
		for _, state := range sample.FindAll[corev1.ContainerStateWaiting](&got) {
			messages = append(messages, state.Message)
		}
		for _, state := range sample.FindAll[corev1.ContainerStateTerminated](&got) {
			messages = append(messages, state.Message)
		}
		sample.CheckSilent(t, messages, secrets...)
		if got.HostIP != got.PodIP || len(got.HostIPs) != len(got.PodIPs) {
			t.Errorf("the node's addresses are %s %v, want the pod's own", got.HostIP, got.HostIPs)
		}
		v.Status = got
		if diff := cmp.Diff(got, pod.PullStatus(sample.Demo(), v, host)); diff != "" {
			t.Fatalf("a second pull differs: -first +second:\n%s", diff)
		}
	})
}
