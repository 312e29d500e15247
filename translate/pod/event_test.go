// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// kubeletEvent is an event as a kubelet records it, about host.
func kubeletEvent(host *corev1.Pod, reason, message string) *corev1.Event {
	at := metav1.NewTime(time.Unix(1700000000, 0))
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: host.Namespace, Name: host.Name + ".17a9f0c3de", UID: "event-uid", Annotations: map[string]string{"of": "kind-worker"}},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", Namespace: host.Namespace, Name: host.Name, UID: host.UID, ResourceVersion: "99", FieldPath: "spec.containers{web}",
		},
		Reason: reason, Message: message, Type: corev1.EventTypeWarning, Count: 3, FirstTimestamp: at, LastTimestamp: at,
		Source: corev1.EventSource{Component: "kubelet", Host: "kind-worker"}, ReportingController: "kubelet", ReportingInstance: "kind-worker",
	}
}

func validateEvent(t interface{ Fatalf(string, ...any) }, e *corev1.Event) {
	internal := &core.Event{}
	if err := legacyscheme.Scheme.Convert(e, internal, nil); err != nil {
		t.Fatalf("convert event: %v", err)
	}
	if errs := validation.ValidateEventCreate(internal, schema.GroupVersion{Version: "v1"}); len(errs) > 0 {
		t.Fatalf("a space refuses it: %v", errs)
	}
}

// S2, N1: one event, whole, as the tenant gets it.
func TestPodEventIsAboutTheVirtualPod(t *testing.T) {
	v, host := scheduledPod("kind-worker")
	at := metav1.NewTime(time.Unix(1700000000, 0))
	want := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "web.17a9f0c3de", Labels: map[string]string{"app.kubernetes.io/managed-by": "berth"}},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "web", UID: "v-uid", FieldPath: "spec.containers{web}"},
		Reason:         "BackOff", Message: "Back-off restarting failed container web in pod web_default(v-uid)",
		Type: corev1.EventTypeWarning, Count: 3, FirstTimestamp: at, LastTimestamp: at,
		Source:              corev1.EventSource{Component: "kubelet", Host: sample.Demo().NodeAlias("kind-worker")},
		ReportingController: "kubelet", ReportingInstance: "kubelet",
	}
	in := kubeletEvent(host, "BackOff", "Back-off restarting failed container web in pod demo--default--web_berth-demo(0a1b2c3d-host-uid)")
	got := pod.Event(sample.Demo(), in, v, host)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("event: -want +got:\n%s", diff)
	}
	validateEvent(t, got)
}

// N1: what kubelets and schedulers say, and what of it a tenant may hear; a
// message of a driver's may hold anything of the host's.
func TestPodEventSaysNothingOfTheHost(t *testing.T) {
	const mount = "the host could not mount a volume of the pod"
	token := sample.Demo().TokenSecretName("default", "web")
	node := sample.Demo().NodeAlias("kind-worker")
	type args struct{ component, reason, message string }
	cases := map[string]struct {
		reason string
		args   args
		want   string // empty: no event
	}{
		"Scheduled": {
			"the node by its alias", args{"default-scheduler", "Scheduled", "Successfully assigned berth-demo/demo--default--web to kind-worker"},
			"Successfully assigned default/web to " + node,
		},
		"FailedScheduling": {
			"the number of nodes and their taints", args{"default-scheduler", "FailedScheduling", "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {dedicated: gpu}. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."},
			"no node fits the pod now: insufficient cpu",
		},
		"Preempted": {"another tenant's pod", args{"default-scheduler", "Preempted", "Preempted by pod 8e1d on node kind-worker"}, ""},
		"OtherScheduler": {
			"a component that is not known", args{"volcano", "FailedScheduling", "0/3 nodes are available"}, "",
		},
		"NodeController":   {"a node's state", args{"node-controller", "NodeNotReady", "Node is not ready"}, ""},
		"TaintEviction":    {"a node's taints", args{"taint-eviction-controller", "TaintManagerEviction", "Marking for deletion Pod berth-demo/demo--default--web"}, ""},
		"AttachController": {"other pods that have the volume", args{"attachdetach-controller", "FailedAttachVolume", `Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) other--default--db`}, ""},
		"Autoscaler":       {"groups of nodes", args{"cluster-autoscaler", "TriggeredScaleUp", "pod triggered scale-up: [{eu-1/gpu-pool 1->2 (max: 5)}]"}, ""},
		"ConfigMap": {
			"what the tenant can mend", args{"kubelet", "FailedMount", `MountVolume.SetUp failed for volume "cfg" : configmap "demo--default--cfg" not found`},
			mount + `: configmap "cfg" not found`,
		},
		"Token": {
			"what Berth brings", args{"kubelet", "FailedMount", `MountVolume.SetUp failed for volume "access" : [secret "` + token + `" not found, configmap "demo--default--kube-root-ca.crt" not found]`},
			mount + `: secret "service account token" not found, configmap "kube-root-ca.crt" not found`,
		},
		"Key": {
			"what the tenant can mend", args{"kubelet", "FailedMount", `MountVolume.SetUp failed for volume "cfg" : references non-existent secret key: tls.crt`},
			mount + ": references non-existent secret key: tls.crt",
		},
		"TimedOut": {
			"which of the tenant's volumes", args{"kubelet", "FailedMount", `Unable to attach or mount volumes: unmounted volumes=[data kube-api-access-x], unattached volumes=[data], failed to process volumes=[]: timed out waiting for the condition`},
			mount + ": volume data is not mounted yet",
		},
		"Driver": {
			"a driver's handles, nodes and secrets", args{"kubelet", "FailedMount", `MountVolume.MountDevice failed for volume "pvc-8a7c" : rpc error: code = Internal desc = volume vol-0123 is attached to node i-0abc, secret "csi-admin" not found`},
			mount + "; it retries",
		},
		"NFS": {
			"a server of the host's", args{"kubelet", "FailedMount", "MountVolume.SetUp failed for volume \"pv-7\" : mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs filer.corp.example:/exports/7 /var/lib/kubelet/pods/1\nOutput: mount.nfs: Connection timed out"},
			mount + "; it retries",
		},
		"Sandbox": {
			"the network's own words", args{"kubelet", "FailedCreatePodSandBox", `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "1": plugin type="calico" failed (add): Get "https://api.corp.example:6443/api/v1/nodes/kind-worker2"`},
			"the host could not create the pod's sandbox; it retries",
		},
		"DNS": {
			"the host's domains", args{"kubelet", "DNSConfigForming", "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: berth-demo.svc.cluster.local svc.cluster.local cluster.local corp.example"},
			"the pod's DNS settings exceed the limits; some were omitted",
		},
		"Resized":  {"the host's volume and node", args{"kubelet", "FileSystemResizeSuccessful", `MountVolume.NodeExpandVolume succeeded for volume "pvc-8a7c" kind-worker`}, "the host resized a volume of the pod"},
		"Pulling":  {"nothing to hide", args{"kubelet", "Pulling", `Pulling image "nginx"`}, `Pulling image "nginx"`},
		"PullFail": {"the node's resolver, and its mirror", args{"kubelet", "Failed", `Failed to pull image "nginx": dial tcp: lookup mirror.corp.example on 172.18.0.1:53: no such host`}, `the host could not pull image "nginx": the registry's name does not resolve`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v, host := scheduledPod("kind-worker")
			in := kubeletEvent(host, tc.args.reason, tc.args.message)
			in.Source.Component, in.ReportingController = tc.args.component, tc.args.component
			got := pod.Event(sample.Demo(), in, v, host)
			if tc.want == "" {
				if got != nil {
					t.Errorf("%s: the tenant hears %q", tc.reason, got.Message)
				}
				return
			}
			if got == nil {
				t.Fatalf("%s: the tenant hears nothing", tc.reason)
			}
			if diff := cmp.Diff(tc.want, got.Message); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			validateEvent(t, got)
			sample.CheckSilent(t, got, "kind-worker", "10.244.1.1", "demo--", "berth-demo", "0a1b2c3d-host-uid", token, "corp.example", "pvc-8a7c")
		})
	}
}

// N1: the reasons under which kubelets quote others, or name volumes by what they
// are called on the host.
func TestPodEventQuotesNoDriver(t *testing.T) {
	for _, reason := range []string{
		"FailedMount", "FailedMapVolume", "FailedAttachVolume", "FailedMountOnFilesystemMismatch", "SuccessfulMountVolume", "AlreadyMountedVolume",
		"VolumePermissionChangeInProgress", "VolumeResizeFailed", "FileSystemResizeFailed", "VolumeResizeSuccessful", "FileSystemResizeSuccessful",
		"FailedCreatePodSandBox", "FailedPodSandBoxStatus", "FailedCreatePodContainer", "FailedPrepareDynamicResources", "FailedSync", "FailedValidation",
		"FailedNodeDeclaredFeaturesCheck", "FailedKillPod", "NetworkNotReady", "DNSConfigForming", "MissingClusterDNS",
	} {
		v, host := scheduledPod("kind-worker")
		got := pod.Event(sample.Demo(), kubeletEvent(host, reason, `volume "pvc-8a7c": rpc error: code = Internal desc = filer.corp.example: secret "corp" not found, unmounted volumes=[corp]`), v, host)
		if got == nil || got.Message == "" {
			t.Errorf("%s: the tenant hears nothing", reason)
		}
		sample.CheckSilent(t, got, "pvc-8a7c", "corp", "rpc", "kind-worker")
	}
}

// S2, N1: of a claim's events, the well-known reasons, in words of Berth's own.
func TestClaimEventSaysNothingOfTheHost(t *testing.T) {
	v := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data-db-0", UID: "c-uid"}}
	const provisioner = "ebs.csi.example.com_kind-worker_0f0e"
	cases := map[string]struct {
		reason                       string
		event, component, says, want string
	}{
		"Waiting":      {"what is next", "WaitForFirstConsumer", "persistentvolume-controller", "waiting for first consumer to be created before binding", "waiting for first consumer to be created before binding"},
		"WaitingOther": {"names a host pod", "WaitForPodScheduled", "persistentvolume-controller", "waiting for pod demo--default--db-0 to be scheduled", "waiting for the claim's pod to be scheduled"},
		"Provisioning": {"names a host claim", "Provisioning", provisioner, `External provisioner is provisioning volume for claim "berth-demo/demo--default--data-db-0"`, "the host provisions a volume for the claim"},
		"Failed":       {"a driver's words", "ProvisioningFailed", provisioner, "rpc error: no space in pool-7 at 10.0.0.5", "the host could not provision a volume for the claim; it tries again"},
		"Succeeded":    {"names a host volume", "ProvisioningSucceeded", provisioner, "Successfully provisioned volume pvc-8a7c", "the host provisioned a volume for the claim"},
		"Unknown":      {"a reason of a driver's own", "BackendRebalanced", provisioner, "moved to pool-8", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := kubeletEvent(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "berth-demo", Name: "demo--default--data-db-0"}}, tc.event, tc.says)
			e.Source.Component, e.ReportingController = tc.component, tc.component
			got := pod.ClaimEvent(e, v)
			if (got == nil) != (tc.want == "") {
				t.Fatalf("%s: got %v", tc.reason, got)
			}
			if got == nil {
				return
			}
			if got.Message != tc.want || got.InvolvedObject.Name != "data-db-0" || got.InvolvedObject.UID != "c-uid" || got.InvolvedObject.Kind != "PersistentVolumeClaim" {
				t.Errorf("%s: %q about %v", tc.reason, got.Message, got.InvolvedObject)
			}
			validateEvent(t, got)
			sample.CheckSilent(t, got, "kind-worker", "ebs.csi", "demo--", "berth-demo", "pool-", "10.0.0.5", "pvc-8a7c")
		})
	}
}

// N1, for any event that a kubelet or a scheduler may record: whatever its other
// fields hold, nothing of the host is left.
func TestAnyPodEventIsSilentAndValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, host := scheduledPod("kind-worker")
		in := &corev1.Event{}
		sample.Fill(t, reflect.ValueOf(in).Elem(), 6)
		in.Source.Component = sample.Of(t, "component", "kubelet", "default-scheduler")
		in.ReportingController = sample.Of(t, "controller", "", in.Source.Component)
		in.Name = sample.Of(t, "event", "demo--default--web.17a9", "demo--default--web", "kind-worker.demo--default--web", "x.kind-worker", "1.0123456789abcdef0")
		in.Message = sample.Of(t, "message", "on kind-worker", "berth-demo/demo--default--web at 10.244.1.1")
		if in.Source.Component == "default-scheduler" {
			in.Message = "0/7 nodes are available: " + in.Message
		}
		in.Reason = sample.Of(t, "reason", "Scheduled", "FailedScheduling", "Failed", "FailedMount", "FailedSync")
		in.Type, in.Action, in.InvolvedObject.FieldPath = corev1.EventTypeNormal, "Binding", ""
		in.Source.Host, in.ReportingInstance = "kind-worker", "default-scheduler-kind-worker"
		in.EventTime = sample.Of(t, "time", metav1.MicroTime{}, metav1.NewMicroTime(time.Unix(1700000000, 0)))
		got := pod.Event(sample.Demo(), in, v, host)
		if got == nil {
			return
		}
		sample.CheckSilent(t, got, "kind-worker", "10.244.1.1", "demo--", "berth-demo", "0a1b2c3d-host-uid", "/7")
		sample.CheckNoSharedMemory(t, in, got)
		if got.EventTime.IsZero() == (got.Series == nil) { // else upstream asks for more than this test is about
			validateEvent(t, got)
		}
	})
}

// A repetition of an event updates the first, and two are not taken for one.
func TestEventNamesFollowTheHosts(t *testing.T) {
	v, host := scheduledPod("kind-worker")
	name := func(host *corev1.Pod, event string) string {
		e := kubeletEvent(host, "Pulling", "")
		e.Name = event
		return pod.Event(sample.Demo(), e, v, host).Name
	}
	if a, b := name(host, "demo--default--web.17a9"), name(host, "demo--default--web.17a9"); a != b || a != "web.17a9" {
		t.Errorf("one event is %s, then %s", a, b)
	}
	seen := map[string]string{}
	for _, event := range []string{"demo--default--web.17a9", "demo--default--web.17aa", "demo--default--web", "demo--default--web.x", "demo--default--web.y"} {
		if other, taken := seen[name(host, event)]; taken {
			t.Errorf("%s and %s are both %s", event, other, name(host, event))
		}
		seen[name(host, event)] = event
	}
}

func TestEventNameFitsTheLimit(t *testing.T) {
	cases := map[string]struct {
		reason, name string
		length       int
	}{
		"Short":     {"nothing is cut", "web", 8},
		"Longest":   {"a name may take all that there is", sample.LongName('n', 253), 253},
		"CutAtDots": {"a cut must leave a valid name", sample.LongName('n', 240) + ".........." + "xyz", 245},
	}
	for name, tc := range cases {
		if got := pod.EventName(tc.name, "17a9"); len(got) != tc.length || got[len(got)-5:] != ".17a9" {
			t.Errorf("%s: %s: EventName is %q, of %d bytes", name, tc.reason, got, len(got))
		}
	}
}

func TestPullEventUpdatesWhatRepeats(t *testing.T) {
	v, host := scheduledPod("kind-worker")
	base := func() *corev1.Event { return pod.Event(sample.Demo(), kubeletEvent(host, "Pulling", "m"), v, host) }
	later := metav1.NewTime(time.Unix(1700000060, 0))
	cases := map[string]struct {
		reason  string
		do      func(e *corev1.Event)
		changed bool
	}{
		"Same":        {"no write for nothing", func(*corev1.Event) {}, false},
		"Count":       {"a repetition", func(e *corev1.Event) { e.Count++ }, true},
		"Time":        {"a repetition", func(e *corev1.Event) { e.LastTimestamp = later }, true},
		"Message":     {"a newer amount", func(e *corev1.Event) { e.Message = "n" }, true},
		"SeriesBegan": {"a repetition, the new way", func(e *corev1.Event) { e.Series = &corev1.EventSeries{Count: 2} }, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want, have := base(), base()
			tc.do(want)
			if changed := pod.PullEvent(want, have); changed != tc.changed {
				t.Errorf("%s: PullEvent reports %v", tc.reason, changed)
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			if pod.PullEvent(want, have) {
				t.Errorf("%s: a second pull reports a change", tc.reason)
			}
		})
	}
	want, have := base(), base()
	want.Series, have.Series = &corev1.EventSeries{Count: 3}, &corev1.EventSeries{Count: 2}
	if !pod.PullEvent(want, have) || have.Series.Count != 3 {
		t.Error("a series that goes on is not pulled")
	}
}
