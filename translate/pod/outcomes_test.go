// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// outcome is what becomes of a field of a tenant's pod on its way to the host.
type outcome string

const (
	kept       outcome = "kept"       // the host pod has it, unchanged
	translated outcome = "translated" // the host pod has what means the same there
	refused    outcome = "refused"    // pod.Check names it
	hostOnly   outcome = "host-only"  // it stays in the space: the host's own counts
)

// decision is about the fields that it names, as JSON does.
type decision struct {
	fields  []string
	outcome outcome
	why     string
	// never is a value that pod.Check refuses although the field is kept.
	never any
	// whole says that what is below the field is not looked at.
	whole bool
}

func are(o outcome, fields, why string) decision {
	return decision{fields: strings.Fields(fields), outcome: o, why: why}
}

func keeps(fields string) decision { return are(kept, fields, "") }

// keepsBut is a field that is kept if its value is not never, or one like it.
func keepsBut(field string, never any, why string) decision {
	return decision{fields: []string{field}, outcome: kept, why: why, never: never}
}

// decided is a Go type of the API's, and the decisions about its fields.
type decided struct {
	of        reflect.Type
	decisions []decision
}

func about[T any](decisions ...decision) decided { return decided{reflect.TypeFor[T](), decisions} }

const (
	hostsName   = "the name of the host's object for it"
	noNodes     = "nodes are hidden"
	baseline    = "what the baseline level of Pod Security allows"
	otherNames  = "found on the host pod under other names"
	nodesFile   = "a file of the host's nodes; an admin may allow them"
	countedOnly = "cpu, memory, ephemeral-storage, and what [the quota of the space names](quota.md#devices-and-huge-pages)"
	hostSource  = "reaches storage or files of the host's"
)

// outcomes is the one table of what becomes of each field of a pod's spec, and of
// all types below it. docs/reference/pods.md is made of it. A field that Kubernetes adds
// fails TestEveryFieldOfAPodHasAnOutcome until someone decides.
func outcomes() []decided {
	container := containerOutcomes()
	return append([]decided{
		about[corev1.PodSpec](
			keeps("volumes initContainers containers restartPolicy activeDeadlineSeconds shareProcessNamespace "+
				"securityContext imagePullSecrets affinity tolerations hostAliases topologySpreadConstraints os hostUsers resources hostname hostnameOverride"),
			keepsBut("terminationGracePeriodSeconds", int64(3601), "at most an hour: drains of nodes wait for it"),
			are(kept, "ephemeralContainers", "by a request of their own, once the host pod is there"),
			are(translated, "dnsPolicy dnsConfig", "spelled out, as a kubelet of the space's own would: the space's servers and search path come first"),
			are(translated, "readinessGates", "a condition of Berth's name; what the space's pod says of the gate is written to the host pod"),
			are(translated, "enableServiceLinks", "the space's services are in the containers' environment; the host's never"),
			are(translated, "setHostnameAsFQDN", "the full name is in hostnameOverride, if it has at most 64 bytes: a kubelet would use the host's namespace"),
			are(hostOnly, "subdomain", "for the space's DNS: a kubelet would make the host's namespace part of the name"),
			are(hostOnly, "serviceAccountName serviceAccount automountServiceAccountToken", "accounts and their tokens are the space's; on the host all pods run as one that may do nothing, or each as one that is only a name ([syncing](../concepts/syncing.md))"),
			are(hostOnly, "priorityClassName priority preemptionPolicy", "pods of a space do not push out those of others, unless spaces import a class of the host's ([syncing](../concepts/syncing.md)); classes named system-* are refused"),
			are(hostOnly, "overhead", "set by a host's runtime class"),
			are(hostOnly, "schedulingGates", "the host pod is made when they are gone"),
			are(refused, "nodeName", noNodes),
			are(refused, "nodeSelector", noNodes+", except by labels that an admin lets tenants select by, and `kubernetes.io/os: linux`"),
			are(refused, "hostNetwork hostPID hostIPC", "namespaces of the host's"),
			are(refused, "schedulerName", "except default-scheduler"),
			are(hostOnly, "runtimeClassName", "an imported one is the host pod's, too ([syncing](../concepts/syncing.md)); any other is refused"),
			are(refused, "resourceClaims", "except where [resource claims](../concepts/syncing.md#resource-claims) are synced; otherwise, request [devices of a class](quota.md#devices-and-huge-pages) in the limits of containers"),
			are(refused, "schedulingGroup", "groups of pods are the host's scheduler's"),
			are(hostOnly, "evictionResponders", "who answers evictions in the space is not there on the host"),
		),
		about[corev1.PodSecurityContext](
			keeps("runAsUser runAsGroup runAsNonRoot supplementalGroups supplementalGroupsPolicy fsGroup fsGroupChangePolicy seLinuxChangePolicy " +
				"seLinuxOptions windowsOptions seccompProfile appArmorProfile sysctls"),
		),
		about[corev1.Sysctl](keepsBut("name", "kernel.msgmax", baseline), keeps("value")),
		about[corev1.LocalObjectReference](are(translated, "name", hostsName)),
		about[corev1.Affinity](keeps("podAffinity podAntiAffinity"), are(refused, "nodeAffinity", noNodes+", except by labels that an admin lets tenants select by, and names of virtual nodes where there are DaemonSets ([syncing](../concepts/syncing.md))")),
		about[corev1.PodAffinity](keeps("requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution")),
		about[corev1.PodAntiAffinity](keeps("requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution")),
		about[corev1.WeightedPodAffinityTerm](keeps("weight podAffinityTerm")),
		about[corev1.PodAffinityTerm](
			are(translated, "labelSelector", "selects only the space's own pods"),
			are(translated, "namespaces namespaceSelector", "part of labelSelector; a namespaceSelector is looked up when the host pod is made, and not again"),
			keepsBut("topologyKey", "rack", "one of kubernetes.io/hostname, topology.kubernetes.io/zone and topology.kubernetes.io/region"),
			are(hostOnly, "matchLabelKeys mismatchLabelKeys", "the space's API server has put them into labelSelector"),
		),
		about[corev1.TopologySpreadConstraint](
			keeps("maxSkew whenUnsatisfiable minDomains"),
			keepsBut("topologyKey", "rack", "one of kubernetes.io/hostname, topology.kubernetes.io/zone and topology.kubernetes.io/region"),
			are(translated, "labelSelector", "selects only the space's own pods"),
			are(hostOnly, "matchLabelKeys", "the space's API server has put them into labelSelector"),
			are(hostOnly, "nodeAffinityPolicy nodeTaintsPolicy", noNodes),
		),
		about[metav1.LabelSelector](are(translated, "matchLabels matchExpressions", "narrowed to the space and its namespaces")),
		about[metav1.LabelSelectorRequirement](are(translated, "key operator values", "narrowed to the space and its namespaces")),
		about[corev1.Toleration](
			are(kept, "key operator value effect tolerationSeconds", "of the taints node.kubernetes.io/not-ready and unreachable, and of those that have the name of a device that the pod requests; others are left out, as they lead to nodes that were set apart"),
		),
		about[corev1.HostAlias](keeps("ip hostnames")),
		about[corev1.PodDNSConfig](are(translated, "nameservers searches options", "come after the space's own, in what fits")),
		about[corev1.PodDNSConfigOption](are(translated, "name value", "come after the space's own, in what fits")),
		about[corev1.PodReadinessGate](are(translated, "conditionType", "a name of Berth's, which no condition of the host's has")),
		about[corev1.PodOS](keeps("name")),
	}, append(container, volumeOutcomes()...)...)
}

func containerOutcomes() []decided {
	common := []decision{
		keeps("name image command args workingDir ports envFrom resources restartPolicyRules restartPolicy volumeMounts volumeDevices livenessProbe " +
			"readinessProbe startupProbe lifecycle terminationMessagePath terminationMessagePolicy imagePullPolicy securityContext stdin stdinOnce tty"),
		are(kept, "env", "after the variables of the space's services"),
		are(kept, "resizePolicy", "and a resize in the space is one on the host"),
	}
	const kubelets = "a kubelet asks the pod itself, nobody else"
	return []decided{
		about[corev1.Container](common...),
		about[corev1.EphemeralContainer](append(common, keeps("targetContainerName"))...),
		about[corev1.ContainerPort](
			keeps("name containerPort protocol"),
			are(refused, "hostPort", "ports of nodes are everybody's; use a Service"),
			are(hostOnly, "hostIP", "means nothing without hostPort"),
		),
		about[corev1.EnvFromSource](keeps("prefix configMapRef secretRef")),
		about[corev1.ConfigMapEnvSource](are(translated, "name", hostsName), keeps("optional")),
		about[corev1.SecretEnvSource](are(translated, "name", hostsName), keeps("optional")),
		about[corev1.EnvVar](keeps("name value valueFrom")),
		about[corev1.EnvVarSource](keeps("fieldRef resourceFieldRef configMapKeyRef secretKeyRef fileKeyRef")),
		about[corev1.ObjectFieldSelector](keeps("apiVersion"), are(translated, "fieldPath", otherNames+"; the node's address is the pod's own")),
		about[corev1.ResourceFieldSelector](keeps("containerName resource divisor")),
		about[corev1.ConfigMapKeySelector](are(translated, "name", hostsName), keeps("key optional")),
		about[corev1.SecretKeySelector](are(translated, "name", hostsName), keeps("key optional")),
		about[corev1.FileKeySelector](keeps("volumeName path key optional")),
		about[corev1.ResourceRequirements](
			keepsBut("limits", corev1.ResourceList{"example.com/gpu": one()}, countedOnly),
			keepsBut("requests", corev1.ResourceList{"example.com/gpu": one()}, countedOnly),
			are(refused, "claims", "except where resource claims are synced"),
		),
		about[corev1.ContainerResizePolicy](keeps("resourceName restartPolicy")),
		about[corev1.ContainerRestartRule](keeps("action exitCodes")),
		about[corev1.ContainerRestartRuleOnExitCodes](keeps("operator values")),
		about[corev1.VolumeMount](keeps("name readOnly recursiveReadOnly mountPath subPath mountPropagation subPathExpr bindMountOptions")),
		about[corev1.VolumeDevice](keeps("name devicePath")),
		about[corev1.Probe](keeps("exec httpGet tcpSocket grpc initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold"), keepsBut("terminationGracePeriodSeconds", int64(3601), "at most an hour: drains of nodes wait for it")),
		about[corev1.ExecAction](keeps("command")),
		about[corev1.HTTPGetAction](keeps("path port scheme httpHeaders protocol"), are(refused, "host", kubelets)),
		about[corev1.HTTPHeader](keeps("name value")),
		about[corev1.TCPSocketAction](keeps("port"), are(refused, "host", kubelets)),
		about[corev1.GRPCAction](keeps("port service mode")),
		about[corev1.Lifecycle](keeps("postStart preStop stopSignal")),
		about[corev1.LifecycleHandler](keeps("exec httpGet tcpSocket sleep")),
		about[corev1.SleepAction](keeps("seconds")),
		about[corev1.SecurityContext](
			keeps("capabilities seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot readOnlyRootFilesystem allowPrivilegeEscalation seccompProfile appArmorProfile"),
			keepsBut("procMount", corev1.UnmaskedProcMount, baseline),
			are(refused, "privileged", "root on the node"),
		),
		about[corev1.Capabilities](keepsBut("add", []corev1.Capability{"NET_RAW"}, baseline), keeps("drop")),
		about[corev1.SELinuxOptions](are(refused, "user role type level", "the node's runtime chooses labels, so that pods are kept apart; an admin may allow what the baseline level does")),
		about[corev1.WindowsSecurityContextOptions](
			keeps("runAsUserName"), are(refused, "hostProcess", baseline),
			are(refused, "gmsaCredentialSpecName gmsaCredentialSpec", "group-managed service accounts"),
		),
		about[corev1.SeccompProfile](keepsBut("type", corev1.SeccompProfileTypeUnconfined, "RuntimeDefault; that is also the pod's where it sets none, unless an admin says otherwise"), are(refused, "localhostProfile", nodesFile)),
		about[corev1.AppArmorProfile](keepsBut("type", corev1.AppArmorProfileTypeUnconfined, "RuntimeDefault"), are(refused, "localhostProfile", nodesFile)),
	}
}

func volumeOutcomes() []decided {
	return []decided{
		about[corev1.Volume](
			keeps("name emptyDir secret configMap downwardAPI projected persistentVolumeClaim image"),
			decision{
				fields: []string{"ephemeral"}, outcome: translated, whole: true,
				why: "the space makes the claim, for which the rules for claims hold; the host pod mounts that",
			},
			are(refused, "hostPath gitRepo nfs iscsi glusterfs rbd flexVolume cinder cephfs flocker fc azureFile vsphereVolume quobyte azureDisk gcePersistentDisk "+
				"awsElasticBlockStore photonPersistentDisk portworxVolume scaleIO storageos csi", hostSource+"; use a persistentVolumeClaim"),
		),
		about[corev1.EmptyDirVolumeSource](keeps("medium sizeLimit mode")),
		about[corev1.SecretVolumeSource](are(translated, "secretName", hostsName), keeps("items defaultMode defaultUser optional")),
		about[corev1.ConfigMapVolumeSource](are(translated, "name", hostsName), keeps("items defaultMode defaultUser optional")),
		about[corev1.KeyToPath](keeps("key path mode user")),
		about[corev1.PersistentVolumeClaimVolumeSource](are(translated, "claimName", hostsName), keeps("readOnly")),
		about[corev1.ImageVolumeSource](keeps("reference pullPolicy")),
		about[corev1.DownwardAPIVolumeSource](keeps("items defaultMode defaultUser")),
		about[corev1.DownwardAPIVolumeFile](keeps("path fieldRef resourceFieldRef mode user")),
		about[corev1.DownwardAPIProjection](keeps("items")),
		about[corev1.ProjectedVolumeSource](keeps("sources defaultMode defaultUser")),
		about[corev1.VolumeProjection](
			keeps("secret downwardAPI configMap"),
			are(translated, "serviceAccountToken", "a secret, in which Berth keeps tokens of the space's API that are bound to the pod"),
			are(refused, "clusterTrustBundle podCertificate", "given out by the host"),
		),
		about[corev1.SecretProjection](are(translated, "name", hostsName), keeps("items optional")),
		about[corev1.ConfigMapProjection](are(translated, "name", hostsName), keeps("items optional")),
		about[corev1.ServiceAccountTokenProjection](are(translated, "audience expirationSeconds path user", "asked of the space's API, and renewed at four fifths of the token's life")),
	}
}
