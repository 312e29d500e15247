// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testfields

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// podFields are those of pods. What is kept of each field of a tenant's pod,
// translate's table of the fields of pods says.
func podFields() Table {
	const profile = "of nodes' profiles, the runtime's default alone"
	const containerFields = "name image command args workingDir ports envFrom env resources resizePolicy restartPolicy restartPolicyRules volumeMounts volumeDevices " +
		"livenessProbe readinessProbe startupProbe lifecycle terminationMessagePath terminationMessagePolicy imagePullPolicy securityContext stdin stdinOnce tty"
	return table(
		of[corev1.Pod](tenants, "metadata spec", whole(server, "status")),
		of[corev1.PodSpec](tenants, "volumes initContainers containers restartPolicy activeDeadlineSeconds dnsPolicy dnsConfig shareProcessNamespace "+
			"securityContext imagePullSecrets hostname hostnameOverride affinity hostAliases readinessGates topologySpreadConstraints os hostUsers resources resourceClaims",
			but("terminationGracePeriodSeconds", 1_000_000, bounded), but("automountServiceAccountToken", true, "always false"), but("enableServiceLinks", true, "always false"),
			but("schedulerName", "theirs", "the default scheduler"), but("serviceAccountName", "berth-syncer", names), map[string]entry{"serviceAccount": {why: "the API server makes it of serviceAccountName"}},
			but("nodeSelector", map[string]string{"pool": "theirs"}, "where the admin says so"), map[string]entry{"tolerations": {why: "of failing nodes"}},
			but("priorityClassName", "system-node-critical", "a class that spaces may use"), map[string]entry{"runtimeClassName": {why: "a class that spaces may use, which the syncer sees to"}},
			whole(filled, "priority preemptionPolicy overhead")),
		of[corev1.Toleration]("of failing nodes", "operator value effect tolerationSeconds", but("key", "node-role.kubernetes.io/control-plane", "of failing nodes")),
		of[corev1.PodSecurityContext](tenants, "runAsUser runAsGroup runAsNonRoot supplementalGroups supplementalGroupsPolicy fsGroup fsGroupChangePolicy seLinuxChangePolicy "+
			"seLinuxOptions windowsOptions seccompProfile appArmorProfile sysctls"),
		of[corev1.Sysctl]("those of the baseline level of Pod Security, which the namespace enforces", "name value"),
		of[corev1.SeccompProfile](profile, "", but("type", "Localhost", profile), but("localhostProfile", "theirs", profile)),
		of[corev1.AppArmorProfile](profile, "", but("type", "Localhost", profile), but("localhostProfile", "theirs", profile)),
		of[corev1.SELinuxOptions](profile, "", but("type", "spc_t", "those of the baseline level"), but("level", "s0:c1,c2", "none: pods of one level share files")),
		of[corev1.WindowsSecurityContextOptions](tenants, "runAsUserName", but("hostProcess", true, "false alone")),
		of[corev1.LocalObjectReference]("the host's admission adds those of its service account", "name"),
		of[corev1.Affinity](tenants, "podAffinity podAntiAffinity nodeAffinity"),
		of[corev1.PodAffinity](tenants, "requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution"),
		of[corev1.PodAntiAffinity](tenants, "requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution"),
		of[corev1.WeightedPodAffinityTerm](tenants, "weight podAffinityTerm"),
		of[corev1.PodAffinityTerm](tenants, "labelSelector", but("topologyKey", "rack", "those that nodes differ by on any cluster")),
		of[corev1.NodeAffinity]("where the admin says so", "requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution"),
		of[corev1.NodeSelector]("where the admin says so", "nodeSelectorTerms"),
		of[corev1.PreferredSchedulingTerm]("where the admin says so", "weight preference"),
		of[corev1.NodeSelectorTerm]("where the admin says so", "matchExpressions",
			but("matchFields", []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}}, "where DaemonSets are translated")),
		of[corev1.NodeSelectorRequirement]("where the admin says so", "operator values", but("key", "pool", "where the admin says so")),
		of[corev1.TopologySpreadConstraint](tenants, "maxSkew whenUnsatisfiable minDomains labelSelector", but("topologyKey", "rack", "those that nodes differ by on any cluster")),
		of[corev1.HostAlias](tenants, "ip hostnames"),
		of[corev1.PodDNSConfig](tenants, "nameservers searches options"),
		of[corev1.PodDNSConfigOption](tenants, "name value"),
		of[corev1.PodReadinessGate]("a name of Berth's", "", but("conditionType", "theirs", "a name of Berth's")),
		of[corev1.PodOS](tenants, "name"),

		of[corev1.Container](tenants, containerFields),
		of[corev1.EphemeralContainer](tenants, containerFields+" targetContainerName",
			but("resources", corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}, "they share those of the pod")),
		of[corev1.ContainerPort](tenants, "name containerPort protocol"),
		of[corev1.EnvFromSource](tenants, "prefix configMapRef secretRef"),
		of[corev1.ConfigMapEnvSource](names, "optional", but("name", "theirs", names)),
		of[corev1.SecretEnvSource](names, "optional", but("name", "theirs", names)),
		of[corev1.EnvVar](tenants, "name value valueFrom"),
		of[corev1.EnvVarSource](tenants, "fieldRef resourceFieldRef configMapKeyRef secretKeyRef fileKeyRef"),
		of[corev1.ObjectFieldSelector]("leads to an annotation of Berth's", "apiVersion fieldPath"),
		of[corev1.ResourceFieldSelector](tenants, "containerName resource divisor"),
		of[corev1.ConfigMapKeySelector](names, "key optional", but("name", "theirs", names)),
		of[corev1.SecretKeySelector](names, "key optional", but("name", "theirs", names)),
		of[corev1.FileKeySelector](tenants, "volumeName path key optional"),
		of[corev1.ResourceClaim](tenants, "name request"),
		of[corev1.PodResourceClaim](tenants, "name", but("resourceClaimName", "theirs", names)),
		of[corev1.ResourceRequirements](bounded, "limits claims", but("requests", corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}, "cpu, memory and ephemeral-storage")),
		of[corev1.ContainerResizePolicy](tenants, "resourceName restartPolicy"),
		of[corev1.ContainerRestartRule](tenants, "action exitCodes"),
		of[corev1.ContainerRestartRuleOnExitCodes](tenants, "operator values"),
		of[corev1.VolumeMount](tenants, "name readOnly recursiveReadOnly mountPath subPath mountPropagation subPathExpr bindMountOptions"),
		of[corev1.VolumeDevice](tenants, "name devicePath"),
		of[corev1.Probe](tenants, "exec httpGet tcpSocket grpc initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold",
			but("terminationGracePeriodSeconds", 1_000_000, bounded)),
		of[corev1.ExecAction](tenants, "command"),
		of[corev1.HTTPGetAction](tenants, "path port scheme httpHeaders protocol"),
		of[corev1.HTTPHeader](tenants, "name value"),
		of[corev1.TCPSocketAction](tenants, "port"),
		of[corev1.GRPCAction](tenants, "port service mode"),
		of[corev1.Lifecycle](tenants, "postStart preStop stopSignal"),
		of[corev1.LifecycleHandler](tenants, "exec httpGet tcpSocket sleep"),
		of[corev1.SleepAction](tenants, "seconds"),
		of[corev1.SecurityContext](tenants, "capabilities seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot readOnlyRootFilesystem allowPrivilegeEscalation "+
			"procMount seccompProfile appArmorProfile", but("privileged", true, "false alone, as many charts write it")),
		of[corev1.Capabilities]("those of the baseline level of Pod Security, which the namespace enforces", "add drop"),

		of[corev1.Volume](tenants, "name emptyDir secret configMap downwardAPI projected persistentVolumeClaim image"),
		of[corev1.EmptyDirVolumeSource](tenants, "medium sizeLimit mode"),
		of[corev1.SecretVolumeSource](names, "items defaultMode defaultUser optional", but("secretName", "theirs", names)),
		of[corev1.ConfigMapVolumeSource](names, "items defaultMode defaultUser optional", but("name", "theirs", names)),
		of[corev1.KeyToPath](tenants, "key path mode user"),
		of[corev1.PersistentVolumeClaimVolumeSource](names, "readOnly", but("claimName", "theirs", names)),
		of[corev1.ImageVolumeSource](tenants, "reference pullPolicy"),
		of[corev1.DownwardAPIVolumeSource](tenants, "items defaultMode defaultUser"),
		of[corev1.DownwardAPIVolumeFile](tenants, "path fieldRef resourceFieldRef mode user"),
		of[corev1.DownwardAPIProjection](tenants, "items"),
		of[corev1.ProjectedVolumeSource](tenants, "sources defaultMode defaultUser"),
		of[corev1.VolumeProjection](tenants, "secret downwardAPI configMap", but("serviceAccountToken", corev1.ServiceAccountTokenProjection{Path: "t"}, "for an audience that a webhook asks for, see docs/reference/host-access.md")),
		of[corev1.SecretProjection](names, "items optional", but("name", "theirs", names)),
		of[corev1.ConfigMapProjection](names, "items optional", but("name", "theirs", names)),
	)
}
