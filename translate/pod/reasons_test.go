// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// N1 (S9): what a node has, what all tenants use of it, and which mirrors it pulls
// from, is in the words of kubelets and runtimes, in events and in statuses.
func TestNoWordsTellWhatANodeHas(t *testing.T) {
	type in struct{ reason, message string }
	const again = "the host could not start a container of the pod; it retries"
	pods := map[string]struct { // as the reason of a pod's status, and of an event about it
		in   in
		want string
	}{
		"OutOfcpu":                 {in{"OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000, used: 7600, capacity: 8000"}, "the node that was selected for the pod had no capacity for it"},
		"OutOfpods":                {in{"OutOfpods", "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 110, capacity: 110"}, "the node that was selected for the pod had no capacity for it"},
		"Evicted":                  {in{"Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi, available: 7600Ki. Container web was using 300Mi, request is 0. "}, "the node of the pod was low on memory"},
		"Evicted by a condition":   {in{"Evicted", "The node had condition: [DiskPressure]. 7600"}, "the node of the pod evicted it"},
		"Evicted for its own use":  {in{"Evicted", `Usage of EmptyDir volume "cache" exceeds the limit "1Gi". `}, `Usage of EmptyDir volume "cache" exceeds the limit "1Gi". `},
		"Evicted, with more words": {in{"Evicted", `Usage of EmptyDir volume "cache" exceeds the limit "1Gi". node: 7600`}, "the node of the pod evicted it"},
		"Preempting":               {in{"Preempting", "Preempted in order to admit critical pod kube-system/mirror-7600"}, "the pod was preempted by a pod with a higher priority"},
		"Topology":                 {in{"TopologyAffinityError", "Resources cannot be allocated with Topology locality: 7600"}, "the host gives no details"},
		"Unexpected":               {in{"UnexpectedAdmissionError", "Allocate failed due to no healthy devices 7600, which is unexpected"}, "the host gives no details"},
		"Unknown":                  {in{"OfALaterKubernetes", "used: 7600, capacity: 8000"}, "the host gives no details"},
	}
	events := map[string]struct {
		in   in
		want string
	}{
		"ResizeInfeasible": {in{"ResizeInfeasible", "Pod resize Infeasible: Node didn't have enough capacity: cpu, requested: 100000, capacity: 7600"}, "the pod's new resources do not fit on its node; request less, or delete the pod and create it again"},
		"ResizeDeferred":   {in{"ResizeDeferred", "Pod resize Deferred: Node didn't have enough resource: cpu, requested: 2000, used: 7600, capacity: 8000"}, "the pod's new resources do not fit on its node now; the host retries"},
		"ResizeCompleted":  {in{"ResizeCompleted", `Pod resize completed: {"containers":[{"name":"mirror"}]}`}, "the pod was resized"},
		"Mirror": {in{"Failed", `Failed to pull image "nginx": rpc error: code = Unknown desc = failed to pull and unpack image "docker.io/library/nginx:latest": failed to do request: Head "https://mirror.corp:5000/v2/library/nginx": dial tcp 10.7.6.0:5000: connect: connection refused`},
			`the host could not pull image "nginx": the registry can't be reached`},
		"NotThere":   {in{"Failed", `Failed to pull image "nginx": rpc error: code = NotFound desc = failed to resolve reference "mirror.corp/nginx": mirror.corp/nginx: not found`}, `the host could not pull image "nginx": the registry does not have it`},
		"NotOurs":    {in{"Failed", `Failed to pull image "mirror.corp/pause": 7600`}, "the host could not pull an image of the pod; it retries"},
		"BackOff":    {in{"BackOff", `Back-off pulling image "nginx": ErrImagePull: mirror.corp: 401 Unauthorized`}, `the host could not pull image "nginx": the registry does not allow it; name a secret for it in imagePullSecrets`},
		"Restart":    {in{"BackOff", "Back-off restarting failed container web in pod demo--default--web_berth-demo(0a1b2c3d-host-uid)"}, "Back-off restarting failed container web in pod web_default(v-uid)"},
		"NoCommand":  {in{"Failed", `Error: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: exec: "nope": executable file not found in $PATH: unknown`}, `the container could not be started: exec: "nope": executable file not found in $PATH`},
		"Mount":      {in{"Failed", `Error: failed to create containerd task: error mounting "/var/lib/mirror/pods/7600" to rootfs at "/data"`}, again},
		"Short":      {in{"Failed", "Error: ImagePullBackOff"}, "Error: ImagePullBackOff"},
		"ConfigMap":  {in{"Failed", `Error: configmap "demo--default--cfg" not found`}, `configmap "cfg" not found`},
		"NotMine":    {in{"Failed", `Error: configmap "mirror" not found`}, again},
		"Key":        {in{"Failed", `Error: couldn't find key k in ConfigMap berth-demo/demo--default--cfg`}, `couldn't find key k in ConfigMap "cfg"`},
		"Root":       {in{"Failed", `Error: container has runAsNonRoot and image will run as root (pod: "demo--default--web_berth-demo(0a1b2c3d-host-uid)", container: web)`}, "container has runAsNonRoot and image will run as root"},
		"Probe":      {in{"Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 500"}, "Readiness probe failed: HTTP probe failed with statuscode: 500"},
		"ProbeError": {in{"Unhealthy", `Readiness probe errored: rpc error: code = NotFound desc = mirror 7600`}, "the host gives no details"},
	}
	silent := []string{"7600", "8000", "110", "mirror", "corp", "kind-worker", "demo--", "berth-demo", "/var/lib"}
	for name, tc := range events {
		v, host := scheduledPod("kind-worker")
		if got := pod.Event(sample.Demo(), kubeletEvent(host, tc.in.reason, tc.in.message), v, host); got.Message != tc.want {
			t.Errorf("event %s: %q, want %q", name, got.Message, tc.want)
		}
	}
	for name, tc := range pods {
		v, host := scheduledPod("kind-worker")
		event := pod.Event(sample.Demo(), kubeletEvent(host, tc.in.reason, tc.in.message), v, host)
		host.Status.Reason, host.Status.Message = tc.in.reason, tc.in.message
		host.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.DisruptionTarget, Reason: "TerminationByKubelet", Message: tc.in.message},
			{Type: corev1.PodReady, Reason: tc.in.reason, Message: tc.in.message},
			{Type: corev1.PodResizeInProgress, Reason: corev1.PodReasonError, Message: tc.in.message},
		}
		for _, reason := range []string{"ErrImagePull", "ImagePullBackOff", "CreateContainerError", "RunContainerError", "OfALaterKubernetes"} {
			host.Status.ContainerStatuses = append(host.Status.ContainerStatuses, corev1.ContainerStatus{State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: tc.in.message}, Terminated: &corev1.ContainerStateTerminated{Reason: reason, Message: tc.in.message},
			}})
		}
		status := pod.PullStatus(sample.Demo(), v, host)
		if event.Message != tc.want || status.Message != tc.want {
			t.Errorf("%s: event %q, status %q, want %q", name, event.Message, status.Message, tc.want)
		}
		sample.CheckSilent(t, status, silent...)
	}
}

// N1 (S9): of a reason that nobody has thought of, no word passes.
func TestHostileWordsOfAnUnknownReasonStayOnTheHost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, host := scheduledPod("kind-worker")
		reason := "X" + rapid.StringMatching(`[A-Za-z]{0,12}`).Draw(t, "reason")
		message := rapid.StringMatching(`(q[0-9]{1,4} ?){1,5}`).Draw(t, "message")
		host.Status.Reason, host.Status.Message = reason, message
		for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodReady, corev1.ContainersReady, corev1.PodResizePending, corev1.PodReadyToStartContainers} {
			host.Status.Conditions = append(host.Status.Conditions, corev1.PodCondition{Type: kind, Reason: reason, Message: message})
		}
		host.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}, Terminated: &corev1.ContainerStateTerminated{Reason: reason, Message: message},
		}}}
		status := pod.PullStatus(sample.Demo(), v, host)
		words := []string{status.Message, pod.Event(sample.Demo(), kubeletEvent(host, reason, message), v, host).Message}
		words = append(words, status.InitContainerStatuses[0].State.Waiting.Message, status.InitContainerStatuses[0].State.Terminated.Message)
		for _, c := range status.Conditions {
			words = append(words, c.Message)
		}
		for _, word := range words {
			if strings.ContainsAny(word, "0123456789") {
				t.Fatalf("%s: %q passes", reason, word)
			}
		}
	})
}
