// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// M2, M4: what would reach past the space, with the field that the refusal names.
func TestHostileObjectsThatReachTheHostAreRefused(t *testing.T) {
	t.Parallel()
	demo := sharedBerth(t).demo(t)
	ns := demo.namespace(t, "attacks")

	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: c, image: i CONTAINER}] SPEC}}"
	inSpec := func(spec string) string {
		return strings.NewReplacer(" CONTAINER", "", " SPEC", ", "+spec).Replace(pod)
	}
	inContainer := func(c string) string {
		return strings.NewReplacer(" CONTAINER", ", "+c, " SPEC", "").Replace(pod)
	}
	inVolume := func(v string) string { return inSpec("volumes: [{name: v, " + v + "}]") }
	const service = "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {ports: [{port: 80}] SPEC}}"
	inService := func(spec string) string { return strings.Replace(service, " SPEC", ", "+spec, 1) }
	const claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}} SPEC}}"
	inClaim := func(spec string) string { return strings.Replace(claim, " SPEC", ", "+spec, 1) }

	for name, attack := range map[string]struct{ manifest, field string }{
		"a directory of the node":   {inVolume("hostPath: {path: /}"), "hostPath"},
		"the node's network":        {inSpec("hostNetwork: true"), "hostNetwork"},
		"the node's processes":      {inSpec("hostPID: true"), "hostPID"},
		"the node's IPC":            {inSpec("hostIPC: true"), "hostIPC"},
		"privilege":                 {inContainer("securityContext: {privileged: true}"), "privileged"},
		"a capability":              {inContainer("securityContext: {capabilities: {add: [SYS_ADMIN]}}"), "capabilities"},
		"an SELinux type":           {inSpec("securityContext: {seLinuxOptions: {type: spc_t}}"), "seLinuxOptions"},
		"no seccomp":                {inSpec("securityContext: {seccompProfile: {type: Unconfined}}"), "seccompProfile"},
		"no AppArmor":               {inContainer("securityContext: {appArmorProfile: {type: Unconfined}}"), "appArmorProfile"},
		"an init container's":       {inSpec("initContainers: [{name: i, image: i, securityContext: {privileged: true}}]"), "privileged"},
		"a port of the node":        {inContainer("ports: [{containerPort: 80, hostPort: 80}]"), "hostPort"},
		"a probe of another host":   {inContainer("livenessProbe: {httpGet: {host: 169.254.169.254, port: 80}}"), "host"},
		"a kernel setting":          {inSpec("securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}"), "sysctls"},
		"a node by name":            {inSpec("nodeName: host-node-1"), "spec.nodeName"},
		"a node by label":           {inSpec("nodeSelector: {kubernetes.io/hostname: host-node-1}"), "spec.nodeSelector"},
		"a node by affinity":        {inSpec("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}"), "spec.affinity.nodeAffinity"},
		"a preferred node":          {inSpec("affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}"), "spec.affinity.nodeAffinity"},
		"another scheduler":         {inSpec("schedulerName: mine"), "spec.schedulerName"},
		"a runtime class":           {inSpec("runtimeClassName: gvisor"), "untimeClass"}, // upstream looks for the class first
		"a priority of the system":  {inSpec("priorityClassName: system-node-critical"), "spec.priorityClassName"},
		"a device of the host":      {inSpec("resourceClaims: [{name: gpu, resourceClaimName: gpu}]"), "spec.resourceClaims"},
		"an inline CSI volume":      {inVolume("csi: {driver: secrets-store.csi.k8s.io}"), "spec.volumes[0]"},
		"an NFS volume":             {inVolume("nfs: {server: 10.0.0.1, path: /}"), "spec.volumes[0]"},
		"an iSCSI volume":           {inVolume("iscsi: {targetPortal: 10.0.0.1, iqn: iqn.2001-04.com.example:storage, lun: 0}"), "spec.volumes[0]"},
		"a git repository":          {inVolume("gitRepo: {repository: 'https://example.com'}"), "spec.volumes[0]"},
		"addresses of the network":  {inService("externalIPs: [1.1.1.1]"), "spec.externalIPs"},
		"a volume by name":          {inClaim("volumeName: demo--other--data"), "spec.volumeName"},
		"a volume by label":         {inClaim("selector: {matchLabels: {a: b}}"), "spec.selector"},
		"a volume attributes class": {inClaim("volumeAttributesClassName: gold"), "spec.volumeAttributesClassName"},
		"data of a snapshot":        {inClaim("dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: s}"), "spec.dataSource"},
		"a node":                    {"{apiVersion: v1, kind: Node, metadata: {name: x}}", "nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := demo.tryKubectl(t, attack.manifest, "create", "-n", ns, "-f", "-")
			if err == nil {
				t.Fatalf("it is allowed: %s\n%s", out, attack.manifest)
			}
			if !strings.Contains(out, attack.field) || !strings.Contains(out, "orbidden") && !strings.Contains(out, "not supported") {
				t.Errorf("it is refused with this, which should say that %s is forbidden:\n%s\n%s", attack.field, out, attack.manifest)
			}
		})
	}
}

// M4: pods are refused what they may not ask for when they exist, too.
func TestHostileChangesOfPodsAndServicesAreRefused(t *testing.T) {
	t.Parallel()
	demo := sharedBerth(t).demo(t)
	ns := demo.namespace(t, "later")
	pod := demo.run(t, ns, newPod("meek"))

	yes := true
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", Image: "busybox", SecurityContext: &corev1.SecurityContext{Privileged: &yes},
	}}}
	_, err := demo.CoreV1().Pods(ns).UpdateEphemeralContainers(t.Context(), pod.Name, pod, metav1.UpdateOptions{})
	refused(t, "a privileged ephemeral container", err, "privileged")

	service := must(demo.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "meek"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{}))(t)
	service.ResourceVersion, service.Spec.ExternalIPs = "", []string{"1.1.1.1"}
	_, err = demo.CoreV1().Services(ns).Update(t.Context(), service, metav1.UpdateOptions{})
	refused(t, "an external IP, added later", err, "spec.externalIPs")
}

// M4: controllers, which Berth itself runs, get no further than their tenant.
func TestHostileWorkloadsAreRefusedLikePods(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "by-controller")
	demo.apply(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: reach}
spec:
  selector: {matchLabels: {app: reach}}
  template:
    metadata: {labels: {app: reach}}
    spec: {containers: [{name: c, image: i}], volumes: [{name: v, hostPath: {path: /}}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: grab}
spec:
  selector: {matchLabels: {app: grab}}
  template: {metadata: {labels: {app: grab}}, spec: {containers: [{name: c, image: i}]}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, volumeName: demo--other--data}
---
apiVersion: v1
kind: Pod
metadata: {name: generic}
spec:
  containers: [{name: c, image: i}]
  volumes:
  - name: v
    ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, selector: {matchLabels: {a: b}}}}}
`, "-n", ns)
	var set string
	eventually(t, func() (err error) {
		list, err := demo.AppsV1().ReplicaSets(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) == 1 {
			set = list.Items[0].Name
			return nil
		}
		return expect("number of replica sets", len(list.Items), 1)
	})
	for _, says := range []struct{ kind, name, reason, field string }{
		{"ReplicaSet", set, "FailedCreate", "hostPath"},
		{"StatefulSet", "grab", "FailedCreate", "spec.volumeName"},
		{"Pod", "generic", "FailedBinding", "spec.selector"},
	} {
		if e := demo.awaitEvent(t, ns, says.kind, says.name, says.reason); !strings.Contains(e.Message, says.field) {
			t.Errorf("event about %s %s says %q, want it to name %s", says.kind, says.name, e.Message, says.field)
		}
	}
	if pods := must(demo.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "app"}))(t).Items; len(pods) > 0 {
		t.Errorf("the controllers made %d pods", len(pods))
	}
	selector := metav1.ListOptions{LabelSelector: labelNamespace + "=" + ns}
	if claims := must(host.CoreV1().PersistentVolumeClaims(hostNamespace).List(t.Context(), selector))(t).Items; len(claims) > 0 {
		t.Errorf("the host holds %d claims of the refused", len(claims))
	}
}

// Q3, M4: even with a space's own rights on the host, nothing but the space is
// in reach, and nothing that its isolation forbids.
func TestHostileAccountOfASpaceStaysInside(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	b.demo(t).run(t, "default", newPod("inmate"))
	account := "system:serviceaccount:" + hostNamespace + ":berth-syncer"
	syncer := b.host(t).as(t, account, "system:serviceaccounts", "system:serviceaccounts:"+hostNamespace, "system:authenticated")
	pods := syncer.CoreV1().Pods(hostNamespace)

	// It is the account that Berth itself writes with.
	no := false
	ours := func(p *corev1.Pod) {
		p.Labels = map[string]string{labelSpace: "demo"}
		p.Spec.AutomountServiceAccountToken, p.Spec.EnableServiceLinks = &no, &no
		p.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	}
	byHand(t, pods.Create, newPod(hostName("default", "by-account"), ours))
	if err := pods.Delete(t.Context(), hostName("default", "by-account"), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err) // the syncer deletes it, too: no pod of the space is behind it
	}

	yes := true
	for name, change := range map[string]func(*corev1.Pod){
		"privileged":  func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes} },
		"hostNetwork": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"hostPath": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		},
	} {
		_, err := pods.Create(t.Context(), newPod(hostName("default", "taken-over"), ours, change), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurity") {
			t.Errorf("a pod with %s gets %v, want it refused by Pod Security", name, err)
		}
	}
	inmate := must(pods.Get(t.Context(), hostName("default", "inmate"), metav1.GetOptions{}))(t)
	inmate.ResourceVersion = "" // whatever others write meanwhile
	inmate.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "taken-over", Image: "i", SecurityContext: &corev1.SecurityContext{Privileged: &yes},
	}}}
	if _, err := pods.UpdateEphemeralContainers(t.Context(), inmate.Name, inmate, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurity") {
		t.Errorf("a privileged ephemeral container gets %v, want it refused by Pod Security", err)
	}
	for _, what := range []string{
		"get secrets kube-system", "list secrets berth-demo", "get pods default", "create pods default", "list pods *", "watch secrets *",
		"patch pods berth-demo", "create pods/exec default", "create pods/proxy berth-demo", "create pods/binding berth-demo", "update pods/status berth-demo",
		"get nodes", "list nodes", "get persistentvolumes", "create persistentvolumes",
		"create roles.rbac.authorization.k8s.io berth-demo", "update roles.rbac.authorization.k8s.io berth-demo",
		"create rolebindings.rbac.authorization.k8s.io berth-demo", "bind clusterroles.rbac.authorization.k8s.io",
		"update resourcequotas berth-demo", "delete resourcequotas berth-demo", "update limitranges berth-demo",
		"update networkpolicies.networking.k8s.io default", "delete networkpolicies.networking.k8s.io default", "create serviceaccounts default",
		"create serviceaccounts berth-demo", "update serviceaccounts berth-demo", "create poddisruptionbudgets.policy berth-demo",
		"update namespaces berth-demo", "patch namespaces berth-demo", "delete namespaces berth-demo", "create namespaces",
		"create serviceaccounts/token berth-demo", "impersonate users", "impersonate serviceaccounts kube-system",
	} {
		if mayOnHost(t, syncer, what) {
			t.Errorf("the account of a space may %s on the host", what)
		}
	}
	if !mayOnHost(t, syncer, "create pods berth-demo") {
		t.Error("the host says that the account may nothing, so that the answers above mean nothing")
	}
	checkIsolationIsEnforced(t, b.host(t), syncer)
}

// checkIsolationIsEnforced tries what RBAC grants a space's account, as its tenant
// has such objects, too, and the host's policy for these accounts refuses.
func checkIsolationIsEnforced(t *testing.T, host, syncer *cluster) {
	t.Helper()
	const says = "ValidatingAdmissionPolicy" // that of berth up, or the chart's
	policies := syncer.NetworkingV1().NetworkPolicies(hostNamespace)
	ours := map[string]string{labelSpace: "demo"}
	isolating := must(host.NetworkingV1().NetworkPolicies(hostNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: labelSpace + ",!berth.dev/namespace"}))(t).Items
	if len(isolating) != 3 {
		t.Fatalf("%d isolating policies, want 3", len(isolating))
	}
	choosy := newPod(hostName("default", "choosy"), func(p *corev1.Pod) {
		p.Labels, p.Spec.NodeSelector = ours, map[string]string{corev1.LabelArchStable: "any"}
	})
	pods, dry := syncer.CoreV1().Pods(hostNamespace), []string{metav1.DryRunAll}
	eventually(t, func() error { // a host that has just been given policies takes a moment
		_, byPods := pods.Create(t.Context(), choosy.DeepCopy(), metav1.CreateOptions{DryRun: dry})
		byOthers := policies.Delete(t.Context(), isolating[0].Name, metav1.DeleteOptions{DryRun: dry})
		if !apierrors.IsForbidden(byPods) || !apierrors.IsForbidden(byOthers) {
			return fmt.Errorf("the host does not enforce the policies: %w, %w", byPods, byOthers)
		}
		return nil
	})
	for _, own := range isolating {
		refused(t, "deleting policy "+own.Name, policies.Delete(t.Context(), own.Name, metav1.DeleteOptions{}), says)
		own.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
		_, err := policies.Update(t.Context(), &own, metav1.UpdateOptions{})
		refused(t, "opening policy "+own.Name, err, says)
	}
	for _, name := range []string{"berth-exposure", "demo--default--exposure"} {
		_, err := policies.Create(t.Context(), &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: ours}, Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}},
		}, metav1.CreateOptions{})
		refused(t, "an exposure, "+name, err, says)
	}
	// What of tenants' accounts was synced before that was disabled, it may remove.
	for _, name := range []string{"default", "berth-syncer"} {
		err := syncer.CoreV1().ServiceAccounts(hostNamespace).Delete(t.Context(), name, metav1.DeleteOptions{})
		refused(t, "removing the account "+name, err, says)
	}
	_, err := pods.Create(t.Context(), choosy, metav1.CreateOptions{})
	refused(t, "a node", err, says)
	status := []byte(`{"status":{"podIP":"10.244.9.9","podIPs":[{"ip":"10.244.9.9"}]}}`)
	_, err = pods.Patch(t.Context(), hostName("default", "inmate"), types.MergePatchType, status, metav1.PatchOptions{}, "status")
	refused(t, "another's address", err, says)
}

// mayOnHost asks the API for "VERB RESOURCE[.GROUP][/SUBRESOURCE] [NAMESPACE]".
func mayOnHost(t *testing.T, c *cluster, what string) bool {
	t.Helper()
	words := append(strings.Fields(what), "")
	resource, sub, _ := strings.Cut(words[1], "/")
	resource, group, _ := strings.Cut(resource, ".")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: words[0], Group: group, Resource: resource, Subresource: sub, Namespace: strings.TrimSuffix(words[2], "*"),
		},
	}}
	answer := must(c.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{}))(t)
	return answer.Status.Allowed
}
