// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

type attack struct {
	reason string
	do     func(v *corev1.Pod)
	field  string // that the refusal names
}

// M2, M4: what a tenant may not ask of the host is refused, by the field, and
// left out where the check was passed by.
func TestCheckPodRefusesWhatReachesForTheHost(t *testing.T) {
	cases := map[string]attack{
		"HostNetwork": {"the host's network is everybody's", func(v *corev1.Pod) { v.Spec.HostNetwork = true }, "hostNetwork"},
		"HostPID":     {"processes of others", func(v *corev1.Pod) { v.Spec.HostPID = true }, "hostPID"},
		"HostIPC":     {"memory of others", func(v *corev1.Pod) { v.Spec.HostIPC = true }, "hostIPC"},
		"UnsafeSysctl": {"acts on the whole kernel", func(v *corev1.Pod) {
			v.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}
		}, "sysctls"},
		"PodSELinux": {"a type that is not confined", func(v *corev1.Pod) {
			v.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"}}
		}, "seLinuxOptions"},
		"PodSeccomp": {"all system calls", func(v *corev1.Pod) {
			v.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}
		}, "seccompProfile"},
		"PodAppArmor": {"no profile", func(v *corev1.Pod) {
			v.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}}
		}, "appArmorProfile"},
		"AppArmorAnnotation": {"no profile, the old way", func(v *corev1.Pod) {
			v.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/web": "unconfined"}
		}, "appArmorProfile"},
		"PodHostProcess": {"a process of the Windows host", func(v *corev1.Pod) {
			v.Spec.SecurityContext = &corev1.PodSecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: ptr.To(true)}}
		}, "hostProcess"},
		"PodGMSA": {"names a cluster-scoped object of the host", func(v *corev1.Pod) {
			v.Spec.SecurityContext = &corev1.PodSecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{GMSACredentialSpecName: ptr.To("admin")}}
		}, "gmsaCredentialSpec"},
		"NodeName":       {"chooses a node, past the scheduler", func(v *corev1.Pod) { v.Spec.NodeName = "node-1" }, "spec.nodeName"},
		"SchedulerName":  {"a scheduler of the host's", func(v *corev1.Pod) { v.Spec.SchedulerName = "privileged" }, "spec.schedulerName"},
		"SystemPriority": {"evicts the pods of others", func(v *corev1.Pod) { v.Spec.PriorityClassName = "system-node-critical" }, "spec.priorityClassName"},
		"ResourceClaims": {"devices of the host", func(v *corev1.Pod) {
			v.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("gpu")}}
		}, "spec.resourceClaims"},
		"ClusterTrustBundle": {"a cluster-scoped object of the host's", project(corev1.VolumeProjection{
			ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: ptr.To("ca"), Path: "ca"},
		}), "spec.volumes[1].projected.sources[0]"},
		"PodCertificate": {"a certificate of the host's signers", project(corev1.VolumeProjection{
			PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/s", KeyType: "ED25519", CredentialBundlePath: "c"},
		}), "spec.volumes[1].projected.sources[0]"},
		"TokenAndTrustBundle": {"a source hidden in a source that is allowed", project(corev1.VolumeProjection{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}, ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Path: "ca"},
		}), "spec.volumes[1].projected.sources[0]"},
		"HostPathBehindEmptyDir": {"a source hidden behind one that is allowed", func(v *corev1.Pod) {
			v.Spec.Volumes = append(v.Spec.Volumes, corev1.Volume{Name: "x", VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{}, HostPath: &corev1.HostPathVolumeSource{Path: "/"},
			}})
		}, "spec.volumes[1]"},
	}
	for name, attack := range containerAttacks() {
		for place, change := range map[string]func(v *corev1.Pod, do func(*corev1.Container)){
			"Container": func(v *corev1.Pod, do func(*corev1.Container)) { do(&v.Spec.Containers[0]) },
			"Init": func(v *corev1.Pod, do func(*corev1.Container)) {
				v.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "busybox"}}
				do(&v.Spec.InitContainers[0])
			},
			"Ephemeral": func(v *corev1.Pod, do func(*corev1.Container)) {
				v.Spec.EphemeralContainers = []corev1.EphemeralContainer{{TargetContainerName: "web"}}
				do((*corev1.Container)(&v.Spec.EphemeralContainers[0].EphemeralContainerCommon))
			},
		} {
			attack, change := attack, change
			cases[name+"In"+place] = attackOf(attack, func(v *corev1.Pod) { change(v, attack.do) })
		}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := sample.PlainPod()
			if errs := checked(v); len(errs) > 0 {
				t.Fatalf("refused before the attack: %v", errs)
			}
			tc.do(v)
			errs := checked(v)
			named := false
			for _, err := range errs {
				named = named || strings.Contains(err.Field, tc.field)
				if err.Detail == "" {
					t.Errorf("%s: %v does not say why", tc.reason, err)
				}
			}
			if !named {
				t.Errorf("%s: no refusal names %s: %v", tc.reason, tc.field, errs)
			}
			host := pod.ToHost(sample.Demo(), v, sample.Surroundings{})
			if errs := checked(host); len(errs) > 0 {
				t.Errorf("%s: it is in the host pod still: %v", tc.reason, errs)
			}
		})
	}
}

func project(source corev1.VolumeProjection) func(*corev1.Pod) {
	return func(v *corev1.Pod) {
		v.Spec.Volumes = append(v.Spec.Volumes, corev1.Volume{Name: "x", VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source}},
		}})
	}
}

type containerAttack struct {
	reason string
	do     func(c *corev1.Container)
	field  string
}

func attackOf(a containerAttack, do func(*corev1.Pod)) attack { return attack{a.reason, do, a.field} }

func containerAttacks() map[string]containerAttack {
	context := func(sc corev1.SecurityContext) func(c *corev1.Container) {
		return func(c *corev1.Container) { c.SecurityContext = &sc }
	}
	port := intstr.FromInt32(80)
	return map[string]containerAttack{
		"Privileged": {"root on the node", context(corev1.SecurityContext{Privileged: ptr.To(true)}), "securityContext.privileged"},
		"SysAdmin": {"all but root on the node", context(corev1.SecurityContext{
			Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}},
		}), "capabilities.add"},
		"NetRaw": {"forges packets of others", context(corev1.SecurityContext{
			Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_RAW"}},
		}), "capabilities.add"},
		"AllCapabilities": {"every one at once", context(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"ALL"}}}), "capabilities.add"},
		"HostPort": {"a port of the node", func(c *corev1.Container) {
			c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}, "hostPort"},
		"ProcMount": {"the kernel's files unmasked", context(corev1.SecurityContext{ProcMount: ptr.To(corev1.UnmaskedProcMount)}), "procMount"},
		"SELinuxType": {"a type that is not confined", context(corev1.SecurityContext{
			SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"},
		}), "seLinuxOptions"},
		"SELinuxUser": {"a user of the host's policy", context(corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{User: "system_u"}}), "seLinuxOptions"},
		"Seccomp": {"all system calls", context(corev1.SecurityContext{
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined},
		}), "seccompProfile"},
		"AppArmor": {"no profile", context(corev1.SecurityContext{
			AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
		}), "appArmorProfile"},
		"HostProcess": {"a process of the Windows host", context(corev1.SecurityContext{
			WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: ptr.To(true)},
		}), "hostProcess"},
		"GMSA": {"an account of the host's directory", context(corev1.SecurityContext{
			WindowsOptions: &corev1.WindowsSecurityContextOptions{GMSACredentialSpec: ptr.To("{}")},
		}), "gmsaCredentialSpec"},
		"ProbeOfOthers": {"the kubelet asks where the pod could not", func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: port}}}
		}, "livenessProbe"},
		"HookOfOthers": {"the kubelet calls where the pod could not", func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Port: port}}}
		}, "lifecycle"},
	}
}

// S8: what ordinary workloads ask for passes.
func TestCheckPodPassesOrdinaryPods(t *testing.T) {
	cases := map[string]struct {
		reason string
		do     func(v *corev1.Pod)
	}{
		"Plain": {"kubectl run", func(*corev1.Pod) {}},
		"StatefulSet": {"an ordinal's pod with its claim and a stable name", func(v *corev1.Pod) {
			v.Name, v.Spec.Hostname, v.Spec.Subdomain = "db-0", "db-0", "db"
			v.Spec.Volumes = append(v.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"},
			}})
		}},
		"Restricted": {"what the strictest policies ask of pods", func(v *corev1.Pod) {
			v.Spec.SecurityContext = &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](1000), FSGroup: ptr.To[int64](1000),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}
			v.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}},
			}
		}},
		"Admitted": {"what admission itself adds", func(v *corev1.Pod) {
			v.Spec.SchedulerName, v.Spec.Priority, v.Spec.PreemptionPolicy = "default-scheduler", ptr.To[int32](0), ptr.To(corev1.PreemptLowerPriority)
			v.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
		}},
		"PodAffinity": {"terms between pods", func(v *corev1.Pod) {
			v.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{}},
			}}}
		}},
		"OwnPriority": {"a class of the tenant's own", func(v *corev1.Pod) { v.Spec.PriorityClassName = "important" }},
		"SafeSysctl": {"of the pod's own namespaces", func(v *corev1.Pod) {
			v.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}}
		}},
		"UserNamespace": {"the stricter of the two", func(v *corev1.Pod) { v.Spec.HostUsers = ptr.To(false) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := sample.PlainPod()
			tc.do(v)
			if errs := pod.Check(&v.ObjectMeta, &v.Spec); len(errs) > 0 {
				t.Errorf("%s: refused: %v", tc.reason, errs)
			}
		})
	}
}

// A check that a new Kubernetes adds to the standard must get its field's name,
// and be cleared from host pods, as the others are.
func TestEveryCheckOfPodSecurityIsKnown(t *testing.T) {
	known := "hostNamespaces hostPathVolumes hostPorts hostProbesAndHostLifecycle sysctls privileged capabilities_baseline procMount " +
		"seLinuxOptions seccompProfile_baseline windowsHostProcess appArmorProfile"
	for _, check := range policy.DefaultChecks() {
		if check.Level == translate.PodSecurityLevel && !strings.Contains(" "+known+" ", " "+string(check.ID)+" ") {
			t.Errorf("check %s has no field to name", check.ID)
		}
	}
}

// M2: the node alias that Berth binds a pod to is not the tenant's wish.
func TestAskedLeavesOutWhatBerthWrote(t *testing.T) {
	v := sample.PlainPod()
	v.Spec.NodeName = sample.Demo().NodeAlias("node-1")
	asked := pod.Asked(v)
	if errs := pod.Check(&v.ObjectMeta, &asked); len(errs) > 0 {
		t.Errorf("a bound pod is refused: %v", errs)
	}
	if v.Spec.NodeName == "" {
		t.Error("Asked changed its argument")
	}
}
