// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// Of draws one of the given.
func Of[T any](t *rapid.T, label string, all ...T) T {
	return rapid.SampledFrom(all).Draw(t, label)
}

// Maybe draws one of the given, or nothing.
func Maybe[T any](t *rapid.T, label string, all ...T) *T {
	if rapid.Bool().Draw(t, label+"?") {
		return nil
	}
	return ptr.To(Of(t, label, all...))
}

// TenantPod draws what a tenant with some command of Kubernetes writes: a pod
// that a space admits, or nearly, using what tenants may use.
func TenantPod(t *rapid.T) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: Of(t, "namespace", "default", "team-a", "a--b"),
		Name:      Of(t, "name", "web", "web-0", "a--b", "x.y", "demo--default--web", LongName('p', 253), LongName('p', 63)+".q"),
		UID:       types.UID(Of(t, "uid", "6c1e1a1c-0000-4000-8000-000000000001", "6c1e1a1c-0000-4000-8000-000000000002")),
		Labels: rapid.MapOfN(rapid.SampledFrom([]string{"app", "app.kubernetes.io/name", "berth.dev/space", "x.berth.dev/y"}),
			rapid.SampledFrom([]string{"", "web", "v1.2_3"}), 0, 3).Draw(t, "labels"),
		Annotations: rapid.MapOfN(rapid.SampledFrom([]string{"note", "example.com/long", "berth.dev/uid", "Upper.Case/Key"}),
			rapid.SampledFrom([]string{"", "two\nlines", `quo"ted`, "ünicode"}), 0, 3).Draw(t, "annotations"),
	}}
	spec := &pod.Spec
	tenantVolumes(t, spec)
	for i := range rapid.IntRange(0, 2).Draw(t, "init containers") {
		c := tenantContainer(t, spec, fmt.Sprintf("init-%d", i))
		c.Lifecycle, c.LivenessProbe = nil, nil
		if c.RestartPolicy = Maybe(t, "sidecar", corev1.ContainerRestartPolicyAlways); c.RestartPolicy == nil {
			c.ReadinessProbe = nil
		}
		spec.InitContainers = append(spec.InitContainers, c)
	}
	for i := range rapid.IntRange(1, 2).Draw(t, "containers") {
		spec.Containers = append(spec.Containers, tenantContainer(t, spec, fmt.Sprintf("main-%d", i)))
	}
	for range rapid.IntRange(0, 2).Draw(t, "image pull secrets") {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: Of(t, "secret", Names()...)})
	}
	spec.RestartPolicy = Of(t, "restart", "", corev1.RestartPolicyAlways, corev1.RestartPolicyNever)
	spec.TerminationGracePeriodSeconds = Maybe[int64](t, "grace", 0, 30)
	spec.ActiveDeadlineSeconds = Maybe[int64](t, "deadline", 1, 600)
	spec.ServiceAccountName = Of(t, "account", "", "default", "builder")
	spec.EnableServiceLinks = Maybe(t, "links", true, false)
	spec.ShareProcessNamespace = Maybe(t, "share", true, false)
	spec.Hostname = Of(t, "hostname", "", "", "box", LongName('h', 63))
	spec.Subdomain = Of(t, "subdomain", "", "web")
	if spec.Hostname == "" && spec.Subdomain == "" {
		spec.HostnameOverride = Maybe(t, "override", "box.example.com")
	}
	if rapid.Bool().Draw(t, "aliases") {
		spec.HostAliases = []corev1.HostAlias{{IP: "127.0.0.1", Hostnames: []string{"box.local"}}}
	}
	spec.PriorityClassName = Of(t, "priority", "", "important")
	spec.SchedulerName = Of(t, "scheduler", "", corev1.DefaultSchedulerName)
	if rapid.Bool().Draw(t, "security context") {
		spec.SecurityContext = &corev1.PodSecurityContext{
			RunAsUser: Maybe[int64](t, "user", 0, 1000), FSGroup: Maybe[int64](t, "group", 1000), RunAsNonRoot: Maybe(t, "non-root", false),
			SeccompProfile: Maybe(t, "seccomp", corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}),
			Sysctls:        []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}},
		}
	}
	tenantPlacement(t, pod)
	tenantDNS(t, spec)
	return pod
}

// Names are those of objects that pods refer to.
func Names() []string {
	return []string{"cfg", "a--b", "x.y", "demo--default--cfg", "other--default--cfg", LongName('n', 253)}
}

// LongName returns a name of that length.
func LongName(letter byte, length int) string {
	name := make([]byte, length)
	for i := range name {
		name[i] = letter
	}
	return string(name)
}

// TenantPaths are the downward API's; the first five work in volumes too.
func TenantPaths() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels['app']", "metadata.annotations['example.com/long']",
		"spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
}

func tenantContainer(t *rapid.T, spec *corev1.PodSpec, name string) corev1.Container {
	c := corev1.Container{
		Name: name, Image: Of(t, "image", "nginx", "registry.example.com/a/b:v1@sha256:"+LongName('0', 64)),
		Args: Of(t, "args", nil, []string{"$(A)"}), WorkingDir: Of(t, "dir", "", "/srv"), TTY: rapid.Bool().Draw(t, "tty"),
		TerminationMessagePolicy: Of(t, "message", "", corev1.TerminationMessageFallbackToLogsOnError),
		ImagePullPolicy:          Of(t, "pull", "", corev1.PullAlways),
	}
	if rapid.Bool().Draw(t, "port") {
		c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("http")}}}
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	}
	if rapid.Bool().Draw(t, "resources") {
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"), "ephemeral-storage": resource.MustParse("1")}
	}
	if rapid.Bool().Draw(t, "security context") {
		c.SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), RunAsUser: Maybe[int64](t, "user", 1000),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}},
		}
	}
	for _, volume := range spec.Volumes {
		if rapid.Bool().Draw(t, "mount") {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume.Name, MountPath: "/mnt/" + volume.Name, ReadOnly: rapid.Bool().Draw(t, "ro")})
		}
	}
	tenantEnv(t, &c)
	return c
}

func tenantEnv(t *rapid.T, c *corev1.Container) {
	local := func() corev1.LocalObjectReference {
		return corev1.LocalObjectReference{Name: Of(t, "ref", Names()...)}
	}
	for range rapid.IntRange(0, 2).Draw(t, "env from") {
		source := corev1.EnvFromSource{Prefix: Of(t, "prefix", "", "P_")}
		if rapid.Bool().Draw(t, "from secret") {
			source.SecretRef = &corev1.SecretEnvSource{LocalObjectReference: local(), Optional: Maybe(t, "optional", true)}
		} else {
			source.ConfigMapRef = &corev1.ConfigMapEnvSource{LocalObjectReference: local(), Optional: Maybe(t, "optional", true)}
		}
		c.EnvFrom = append(c.EnvFrom, source)
	}
	for range rapid.IntRange(0, 3).Draw(t, "env") {
		env := corev1.EnvVar{Name: Of(t, "variable", "A", "B", "KUBERNETES_SERVICE_HOST", "DB_SERVICE_HOST", "odd.name-1")}
		switch Of(t, "kind of variable", "value", "field", "resource", "secret", "config map") {
		case "value":
			env.Value = Of(t, "value", "", "x", "$(A)", "$(DB_SERVICE_HOST)", "$$(B)", "http://$(KUBERNETES_SERVICE_HOST)")
		case "field":
			env.ValueFrom = &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: Of(t, "path", TenantPaths()...)}}
		case "resource":
			env.ValueFrom = &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"}}
		case "secret":
			env.ValueFrom = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local(), Key: "k", Optional: Maybe(t, "optional", true)}}
		case "config map":
			env.ValueFrom = &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local(), Key: "k"}}
		}
		c.Env = append(c.Env, env)
	}
}

func tenantVolumes(t *rapid.T, spec *corev1.PodSpec) {
	local := func() corev1.LocalObjectReference {
		return corev1.LocalObjectReference{Name: Of(t, "ref", Names()...)}
	}
	items := func(i int) []corev1.KeyToPath {
		return []corev1.KeyToPath{{Key: "k", Path: fmt.Sprintf("file-%d", i)}}
	}
	files := func(i int) []corev1.DownwardAPIVolumeFile {
		path := Of(t, "path", append(TenantPaths()[:5], "metadata.labels", "metadata.annotations")...)
		return []corev1.DownwardAPIVolumeFile{
			{Path: fmt.Sprintf("field-%d", i), FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}},
			{Path: fmt.Sprintf("resource-%d", i), ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "main-0", Resource: "limits.memory"}},
		}
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "volumes") {
		volume := corev1.Volume{Name: fmt.Sprintf("vol-%d", i)}
		switch Of(t, "kind of volume", "config map", "secret", "empty", "downward", "projected", "claim", "ephemeral", "none") {
		case "config map":
			volume.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: local(), Items: items(0), DefaultMode: Maybe[int32](t, "mode", 0o400)}
		case "secret":
			volume.Secret = &corev1.SecretVolumeSource{SecretName: Of(t, "ref", Names()...), Optional: Maybe(t, "optional", true)}
		case "empty":
			volume.EmptyDir = &corev1.EmptyDirVolumeSource{Medium: Of(t, "medium", "", corev1.StorageMediumMemory), SizeLimit: Maybe(t, "size", resource.MustParse("1Gi"))}
		case "downward":
			volume.DownwardAPI = &corev1.DownwardAPIVolumeSource{Items: files(0)}
		case "claim":
			volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: Of(t, "ref", Names()...), ReadOnly: rapid.Bool().Draw(t, "ro")}
		case "ephemeral":
			volume.Ephemeral = &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			}}}
		case "projected":
			volume.Projected = &corev1.ProjectedVolumeSource{}
			for j := range rapid.IntRange(0, 4).Draw(t, "sources") {
				var source corev1.VolumeProjection
				switch Of(t, "kind of source", "token", "config map", "secret", "downward") {
				case "token":
					source.ServiceAccountToken = &corev1.ServiceAccountTokenProjection{
						Path: fmt.Sprintf("token-%d", j), Audience: Of(t, "audience", "", "vault"), ExpirationSeconds: Maybe[int64](t, "seconds", 3607),
					}
				case "config map":
					source.ConfigMap = &corev1.ConfigMapProjection{LocalObjectReference: local(), Items: items(j)}
				case "secret":
					source.Secret = &corev1.SecretProjection{LocalObjectReference: local(), Items: items(j), Optional: Maybe(t, "optional", true)}
				case "downward":
					source.DownwardAPI = &corev1.DownwardAPIProjection{Items: files(j)}
				}
				volume.Projected.Sources = append(volume.Projected.Sources, source)
			}
		}
		spec.Volumes = append(spec.Volumes, volume)
	}
}

func tenantSelector(t *rapid.T) *metav1.LabelSelector {
	return Of(t, "selector", nil, &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "berth.dev/space", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"demo"}}}})
}

func tenantPlacement(t *rapid.T, pod *corev1.Pod) {
	term := func() corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{
			LabelSelector: tenantSelector(t), NamespaceSelector: tenantSelector(t), TopologyKey: "kubernetes.io/hostname",
			Namespaces: Of(t, "namespaces", nil, []string{"team-a"}, []string{"team-a", "a--b", "team-a"}),
		}
	}
	if rapid.Bool().Draw(t, "affinity") {
		pod.Spec.Affinity = &corev1.Affinity{
			PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term()}},
			PodAntiAffinity: &corev1.PodAntiAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term()}},
			},
		}
	}
	if rapid.Bool().Draw(t, "spread") {
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: tenantSelector(t),
			NodeTaintsPolicy: Maybe(t, "taints", corev1.NodeInclusionPolicyHonor),
		}}
	}
	for range rapid.IntRange(0, 2).Draw(t, "tolerations") {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, Of(t, "toleration",
			corev1.Toleration{Operator: corev1.TolerationOpExists},
			corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "gpu", Effect: corev1.TaintEffectNoSchedule},
			corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](5)},
		))
	}
}

func tenantDNS(t *rapid.T, spec *corev1.PodSpec) {
	spec.DNSPolicy = Of(t, "DNS policy", "", corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)
	if spec.DNSPolicy != corev1.DNSNone && rapid.Bool().Draw(t, "no DNS config") {
		return
	}
	spec.DNSConfig = &corev1.PodDNSConfig{
		Nameservers: Of(t, "servers", []string{"9.9.9.9"}, []string{"9.9.9.9", "10.1.0.10", "fd00::1"}),
		Searches:    Of(t, "searches", nil, []string{"example.com", "svc.cluster.local"}, ManySearches(32, 20), ManySearches(9, 220)),
		Options:     Of(t, "options", nil, []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("2")}, {Name: "edns0"}}),
	}
}

// ManySearches returns search domains of a pod, each of that length.
// ManySearches returns search domains of a pod, each of that length.
func ManySearches(count, length int) []string {
	var out []string
	for i := range count {
		out = append(out, fmt.Sprintf("s%02d.%s", i, LongName('s', length-4)))
	}
	return out
}
