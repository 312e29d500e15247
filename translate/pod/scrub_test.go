// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// scheduledPod is a pod of a tenant's and its host pod, running on node.
func scheduledPod(node string) (v, host *corev1.Pod) {
	v = sample.PlainPod()
	v.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "regcred"}}
	v.Spec.Volumes = append(v.Spec.Volumes,
		corev1.Volume{Name: "cfg", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cfg"}}}},
		corev1.Volume{Name: "sec", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "a--b"}}},
		corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-web"}}},
		corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
	)
	host = pod.ToHost(sample.Demo(), v, sample.Surroundings{})
	host.UID = "0a1b2c3d-host-uid"
	host.Spec.NodeName = node
	host.Status.HostIP = "10.244.1.1"
	host.Status.HostIPs = []corev1.HostIP{{IP: "10.244.1.1"}, {IP: "fd00:244::1"}}
	host.Status.PodIP = "10.244.1.15"
	host.Status.PodIPs = []corev1.PodIP{{IP: "10.244.1.15"}, {IP: "fd00:244::15"}}
	return v, host
}

// N1: what kubelets write, as they write it, with everything of the host's gone
// and everything of the tenant's in its own words.
func TestScrubLeavesNothingOfTheHost(t *testing.T) {
	alias := sample.Demo().NodeAlias("kind-worker")
	token := sample.Demo().TokenSecretName("default", "web")
	secret := sample.Demo().HostName("default", "a--b", translate.LimitSubdomain)
	cases := map[string]struct {
		reason   string
		in, want string
	}{
		"BackOff": {
			"pod, namespace and UID in one word", "Back-off restarting failed container web in pod demo--default--web_berth-demo(0a1b2c3d-host-uid)",
			"Back-off restarting failed container web in pod web_default(v-uid)",
		},
		"ConfigMap": {
			"references are named as the tenant named them", `MountVolume.SetUp failed for volume "cfg" : configmap "demo--default--cfg" not found`,
			`MountVolume.SetUp failed for volume "cfg" : configmap "cfg" not found`,
		},
		"SecretWithSeparator": {
			"also those that end like another", `couldn't find key k in Secret berth-demo/` + secret, `couldn't find key k in Secret default/a--b`,
		},
		"TokenSecret": {"is nothing that the tenant knows", `secret "` + token + `" not found`, `secret "service account token" not found`},
		"PullSecrets": {
			"in brackets", "Unable to retrieve some image pull secrets (demo--default--regcred); attempting to pull the image may not succeed.",
			"Unable to retrieve some image pull secrets (regcred); attempting to pull the image may not succeed.",
		},
		"Claim":          {"of a claim", `persistentvolumeclaim "demo--default--data-web" not found`, `persistentvolumeclaim "data-web" not found`},
		"EphemeralClaim": {"of a claim that Kubernetes named", `persistentvolumeclaim "demo--default--web-scratch" not found`, `persistentvolumeclaim "web-scratch" not found`},
		"NodeAuthorizer": {
			"the node twice, the namespace once",
			`secrets "demo--default--regcred" is forbidden: User "system:node:kind-worker" cannot get resource "secrets" in API group "" in the namespace "berth-demo": no relationship found between node 'kind-worker' and this object`,
			`secrets "regcred" is forbidden: User "system:node:` + alias + `" cannot get resource "secrets" in API group "" in the namespace "default": no relationship found between node '` + alias + `' and this object`,
		},
		"Resolver": {
			"the address of the node's resolver",
			`failed to do request: Head "https://registry-1.docker.io/v2/library/nope/manifests/latest": dial tcp: lookup registry-1.docker.io on 172.18.0.1:53: no such host`,
			`failed to do request: Head "https://registry-1.docker.io/v2/library/nope/manifests/latest": dial tcp: lookup registry-1.docker.io on host-address:53: no such host`,
		},
		"HostAPI": {
			"the address of the host's API", `Get "https://10.96.0.1:443/api/v1/namespaces/berth-demo": dial tcp 10.96.0.1:443: i/o timeout`,
			`Get "https://host-address:443/api/v1/namespaces/default": dial tcp host-address:443: i/o timeout`,
		},
		"Probe": {
			"the pod's own address begins with the host's, and stays", `Readiness probe failed: Get "http://10.244.1.15:80/": dial tcp 10.244.1.15:80: connect: connection refused`,
			`Readiness probe failed: Get "http://10.244.1.15:80/": dial tcp 10.244.1.15:80: connect: connection refused`,
		},
		"Probe6": {
			"in both families", `dial tcp [fd00:244::15]:80: connect: connection refused`, `dial tcp [fd00:244::15]:80: connect: connection refused`,
		},
		"HostIP":          {"the node by its address", "rejected by 10.244.1.1.", "rejected by " + alias + "."},
		"HostIP6":         {"in both families", "dial tcp [fd00:244::1]:10250: connect", "dial tcp [" + alias + "]:10250: connect"},
		"HostIP6Long":     {"however it is written", "dial tcp [fd00:244:0:0:0:0:0:1]:10250: connect", "dial tcp [" + alias + "]:10250: connect"},
		"Mapped":          {"however it is written", "from ::ffff:10.244.1.1", "from " + alias},
		"AddressAndColon": {"an address before a colon is one", "10.96.0.1:connection refused; fd00:96::1:connection refused", "host-address:connection refused; host-address:connection refused"},
		"EscapedLine":     {"a line may be quoted within a message", `failed: "stdout\n10.96.0.1\nkind-worker"`, `failed: "stdout\nhost-address\n` + alias + `"`},
		"Loopback":        {"the pod's own", "dial tcp 127.0.0.1:80 and [::1]:80", "dial tcp 127.0.0.1:80 and [::1]:80"},
		"NoAddress":       {"what only looks like one stays", "nginx:1.27.3 at 12:30:45, std::string, 0a:58:0a:f4:00:05, v1.2.3.4", "nginx:1.27.3 at 12:30:45, std::string, 0a:58:0a:f4:00:05, v1.2.3.4"},
		"Path": {
			"UIDs are part of paths", `error mounting "/var/lib/kubelet/pods/0a1b2c3d-host-uid/volume-subpaths/cfg/web/0"`, `error mounting "/var/lib/kubelet/pods/v-uid/volume-subpaths/cfg/web/0"`,
		},
		"Empty": {"nothing to say", "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v, host := scheduledPod("kind-worker")
			if diff := cmp.Diff(tc.want, pod.Scrub(sample.Demo(), tc.in, v, host)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A name that is part of another, or of ordinary words, or that a replacement
// spells out, must neither leak nor be taken for what it is not.
func TestScrubTellsNamesFromTheirParts(t *testing.T) {
	cases := map[string]struct {
		reason   string
		node     string
		name     string // of the virtual pod
		in, want string // where NODE stands for the node's alias
	}{
		"ReplacementIsTheNodesName": {
			"a tenant that guesses a node's name would see it confirmed", "kind-worker", "kind-worker",
			"pod demo--default--kind-worker on kind-worker", "pod kind-worker on NODE",
		},
		"ReplacementIsTheNamespace": {
			"what was replaced is not replaced again", "kind-worker", "berth-demo", "pod demo--default--berth-demo_berth-demo", "pod berth-demo_default",
		},
		"NodeInsideThePod":      {"the longer name counts", "default", "web", "pod demo--default--web on default", "pod web on NODE"},
		"NodeIsTheSpace":        {"the longer name counts", "demo", "web", "pod demo--default--web on demo", "pod web on NODE"},
		"NodeIsAWord":           {"a word that has the node's name in it is not the node", "web", "x", "webhook for web, cobweb", "webhook for NODE, cobweb"},
		"NodeIsALetter":         {"a message must stay readable", "a", "web", "a failed mount at a", "NODE failed mount at NODE"},
		"NodeIsANumber":         {"digests are not nodes", "7", "web", "sha256:7a7 on 7", "sha256:7a7 on NODE"},
		"NodeWithDomain":        {"a node's name may stand before a domain", "ip-10-0-0-1", "web", "ip-10-0-0-1.ec2.internal", "NODE.ec2.internal"},
		"NodeIsAnAddress":       {"nodes may be named by their address", "10.0.0.9", "web", "on 10.0.0.9:10250", "on NODE:10250"},
		"NodeWithinAWord":       {"a name that is no word is hidden even where it has no end", "node-1", "web", "xnode-1x", "xNODEx"},
		"OtherPodOfTheSpace":    {"another pod's name is the tenant's too", "kind-worker", "web", "demo--default--web-2", "web-2"},
		"PodNamedLikeAnAddress": {"a pod may be named like an address", "kind-worker", "10.0.0.9", "pod demo--default--10.0.0.9", "pod 10.0.0.9"},
		"NodeNamedLikeAlias":    {"an alias is not replaced again", "node", "web", "on node", "on NODE"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := sample.PlainPod()
			v.Name = tc.name
			host := pod.ToHost(sample.Demo(), v, sample.Surroundings{})
			host.UID, host.Spec.NodeName = "host-uid", tc.node
			want := strings.ReplaceAll(tc.want, "NODE", sample.Demo().NodeAlias(tc.node))
			if diff := cmp.Diff(want, pod.Scrub(sample.Demo(), tc.in, v, host)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// N1, for messages that nobody has thought of: whatever stands around them, no
// secret is left. The letter q is in every secret and nowhere else.
func TestScrubHidesEverySecretWhereverItStands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node := rapid.StringMatching(`q[0-9q]{0,6}([-.]?[0-9q]{1,6}){0,3}`).Draw(t, "node")
		v := sample.PlainPod()
		v.Name = sample.Of(t, "name", "web", "a--b", sample.LongName('n', 253))
		space := translate.Space{Name: "qemo", NodeKey: []byte("key")}
		host := pod.ToHost(space, v, sample.Surroundings{})
		host.UID, host.Spec.NodeName, host.Status.NominatedNodeName = "q-uid", node, "q-nominated"
		secrets := []string{node, "q-nominated", host.Name, host.Namespace, "q-uid", space.TokenSecretName("default", v.Name)}
		filler := rapid.OneOf(rapid.SampledFrom([]string{" ", "_", "\"", "/", `\n`, "(", ":", "=", ".", ", "}), rapid.StringMatching(`[ "(:/_]([a-pr-z0-9:/ .-]{0,6}[ "(:/_])?`))
		var message strings.Builder
		for range rapid.IntRange(1, 8).Draw(t, "words") {
			message.WriteString(filler.Draw(t, "filler"))
			message.WriteString(rapid.SampledFrom(secrets).Draw(t, "secret"))
		}
		message.WriteString(filler.Draw(t, "end"))
		if got := pod.Scrub(space, message.String(), v, host); strings.Contains(got, "q") {
			t.Fatalf("%q became %q", message.String(), got)
		}
	})
}

// N1: whatever a message is made of and a node is called, the host's address and
// its pod's name do not survive as words, and the pod's own address does.
func FuzzScrub(f *testing.F) {
	f.Add("on ", " failed", "kind-worker", uint8(1))
	f.Add("a:", ":b", "a", uint8(250))
	f.Add("[", "]:443", "10.0.0.9", uint8(1))
	f.Add(`\n`, `\t`, "node", uint8(0))
	f.Add("::ffff:", ".", "web", uint8(15))
	f.Add("", "", "203", uint8(15))
	f.Fuzz(func(t *testing.T, before, after, node string, octet uint8) {
		v := sample.PlainPod()
		host := pod.ToHost(sample.Demo(), v, sample.Surroundings{})
		host.Spec.NodeName, host.Status.PodIP = node, "198.51.100.7"
		secret := fmt.Sprintf("203.0.113.%d", octet)
		got := pod.Scrub(sample.Demo(), before+" "+secret+" demo--default--web 198.51.100.7 "+after, v, host)
		for _, word := range []string{secret, "demo--default--web"} {
			if strings.Contains(got, " "+word+" ") && !strings.Contains(before+after, word) {
				t.Errorf("%q tells %s", got, word)
			}
		}
		if !strings.Contains(got, " 198.51.100.7 ") && !strings.ContainsAny(node, "-. ") && node != "" {
			t.Errorf("%q does not tell the pod's own address", got)
		}
	})
}

// N1: how many nodes there are, what they are labelled and tainted with, and
// what they have, is in the scheduler's messages; the reasons a tenant can act
// on are what is left.
func TestSchedulingReasonSaysOnlyWhatTheTenantCanActOn(t *testing.T) {
	const fits = "no node fits the pod now"
	cases := map[string]struct {
		reason   string
		in, want string
	}{
		"Mixed": {
			"counts, a taint, and the preemption's counts",
			"0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {dedicated: gpu}. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.",
			fits + ": insufficient cpu",
		},
		"Several": {
			"each once, and the last word of a sentence", "0/12 nodes are available: 4 Insufficient cpu, 5 Insufficient memory, 3 Insufficient example.com/gpu. preemption: 0/12 nodes are available: 12 Insufficient cpu.",
			fits + ": insufficient cpu, insufficient memory, insufficient example.com/gpu",
		},
		"Taint": {
			"nothing that the tenant could do", "0/1 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }. no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
			fits + "; the host retries",
		},
		"NodeAffinity": {"nor here", "0/5 nodes are available: 5 node(s) didn't match Pod's node affinity/selector.", fits + "; the host retries"},
		"Unschedulable": {
			"nor here", "0/2 nodes are available: 2 node(s) were unschedulable.", fits + "; the host retries",
		},
		"TooManyPods":  {"a limit of nodes", "0/1 nodes are available: 1 Too many pods.", fits + ": too many pods"},
		"AntiAffinity": {"the tenant's own rule", "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.", fits + ": the pod's anti-affinity rules are not met"},
		"Affinity":     {"the tenant's own rule", "0/3 nodes are available: 3 node(s) didn't match pod affinity rules.", fits + ": the pod's affinity rules are not met"},
		"Spread":       {"the tenant's own rule", "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints.", fits + ": the pod's topology spread constraints are not met"},
		"Volumes":      {"where a volume is", "0/3 nodes are available: 3 node(s) had volume node affinity conflict.", fits + ": the pod's volumes are not in one place"},
		"Unbound":      {"a claim waits", "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.", fits + ": a volume claim of the pod is not bound yet"},
		"Missing":      {"a claim by its host name", `0/1 nodes are available: persistentvolumeclaim "demo--default--data" not found.`, fits + ": a volume claim of the pod is missing or not bound yet"},
		"Devices":      {"counts, and a driver's node", "0/3 nodes are available: 3 cannot allocate all claims. still not schedulable, preemption: 0/3 nodes are available.", fits + ": no devices are left for a resource claim of the pod"},
		"NoClaim":      {"a claim by its host name", `0/3 nodes are available: resourceclaim.resource.k8s.io "demo--default--gpu" not found.`, fits + ": a resource claim of the pod is missing, or is in use"},
		"NoClass":      {"a class of the host", "0/3 nodes are available: 3 request r: device class gpu.example.com does not exist.", fits + ": a device class of a resource claim doesn't exist"},
		"HostileTaint": {"a taint may be named like a reason", "0/1 nodes are available: 1 node(s) had untolerated taint {Insufficient: node-1}.", fits + "; the host retries"},
		"Unknown":      {"a message of a later Kubernetes", "node kind-worker at 10.0.0.1 said no", fits + "; the host retries"},
		"Nothing":      {"no message", "", fits + "; the host retries"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, pod.SchedulingReason(tc.in)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// N1: whatever a scheduler says, only phrases of Berth's own, and names of
// resources, go up.
func FuzzSchedulingReason(f *testing.F) {
	f.Add("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {dedicated: gpu}.")
	f.Add("0/1 nodes are available: persistentvolumeclaim \"demo--default--data\" not found, 1 Too many pods.")
	f.Add("Insufficient Insufficient cpu.Insufficient")
	phrase := `(insufficient [A-Za-z0-9./_-]+|too many pods|the pod's (anti-affinity|affinity) rules are not met|the pod's topology spread constraints are not met|` +
		`the pod's volumes are not in one place|a volume claim of the pod is (missing or )?not bound yet|a port is taken)`
	whole := regexp.MustCompile(`^no node fits the pod now(; the host retries|: ` + phrase + `(, ` + phrase + `)*)$`)
	f.Fuzz(func(t *testing.T, message string) {
		if got := pod.SchedulingReason(message); !whole.MatchString(got) {
			t.Errorf("%q became %q", message, got)
		}
	})
}

// N1: the host refuses an object in its own words; the tenant reads them in its
// events.
func TestScrubNamesSpeaksOfTheVirtualObject(t *testing.T) {
	v := sample.PlainPod()
	service := &corev1.Service{}
	service.Namespace, service.Name = "default", sample.LongName('s', 60)
	hostService := sample.Demo().HostName("default", service.Name, translate.LimitLabel)
	cases := map[string]struct {
		reason string
		got    string
		want   string
	}{
		"Quota": {
			"the quota's name is no secret",
			pod.ScrubNames(sample.Demo(), `pods "demo--default--web" is forbidden: exceeded quota: berth, requested: pods=1, used: pods=20, limited: pods=20`, v),
			`pods "web" is forbidden: exceeded quota: berth, requested: pods=1, used: pods=20, limited: pods=20`,
		},
		"Namespace": {
			"the host's namespace", pod.ScrubNames(sample.Demo(), `namespaces "berth-demo" not found`, v), `namespaces "default" not found`,
		},
		"Service": {
			"a name cut for a label, and the host's service network",
			pod.ScrubNames(sample.Demo(), `Service "`+hostService+`" is invalid: spec.clusterIPs: Invalid value: ["10.1.0.9"]: failed to allocate IP 10.1.0.9: the provided IP is not in the valid range. The range of valid IPs is 10.96.0.0/16`, service),
			`Service "` + service.Name + `" is invalid: spec.clusterIPs: Invalid value: ["host-address"]: failed to allocate IP host-address: the provided IP is not in the valid range. The range of valid IPs is host-address/16`,
		},
		"Webhook": {
			"an address of the host's", pod.ScrubNames(sample.Demo(), `failed calling webhook "w": Post "https://w.sys.svc:443": dial tcp 10.96.3.4:443: connect: connection refused`, v),
			`failed calling webhook "w": Post "https://w.sys.svc:443": dial tcp host-address:443: connect: connection refused`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
