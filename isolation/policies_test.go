// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
)

// T2, M4, Q3: a space's account in the wrong hands changes no isolation object, claims no
// address, takes no identity and touches nothing that is not the space's.
func TestHostileWritesOfASpacesAccountAreRefusedByTheHost(t *testing.T) {
	g := startPolicedHost(t)
	existing := func(o client.Object, change func()) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := g.admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return fmt.Errorf("the test: %w", err)
			}
			change()
			return g.account.Update(ctx, o, client.DryRunAll)
		}
	}
	created := func(o client.Object) func(context.Context) error {
		return func(ctx context.Context) error { return g.account.Create(ctx, o, client.DryRunAll) }
	}
	deleted := func(o client.Object) func(context.Context) error {
		return func(ctx context.Context) error { return g.account.Delete(ctx, o, client.DryRunAll) }
	}
	opening := func(peers ...networkingv1.NetworkPolicyPeer) func(context.Context) error {
		return created(policy("mine--default--open", peers...))
	}
	podWith := func(change func(*corev1.Pod)) func(context.Context) error {
		pod := hostPod("mine--default--other")
		change(pod)
		return created(pod)
	}
	service := func(spec corev1.ServiceSpec) func(context.Context) error {
		if spec.Ports == nil {
			spec.Ports = []corev1.ServicePort{{Port: 80}}
		}
		return created(&corev1.Service{ObjectMeta: meta("berth-mine", "mine--default--web", "mine"), Spec: spec})
	}
	specWith := func(change func(*corev1.PodSpec)) func(context.Context) error {
		return podWith(func(p *corev1.Pod) { change(&p.Spec) })
	}
	mounting := func(source corev1.VolumeSource) func(context.Context) error {
		return specWith(func(p *corev1.PodSpec) { p.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} })
	}
	token := func(account, audience string) func(context.Context) error {
		return specWith(func(p *corev1.PodSpec) {
			p.ServiceAccountName = account
			p.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
				ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t", Audience: audience},
			}}}}}}
		})
	}
	tolerating := func(t corev1.Toleration) func(context.Context) error {
		return specWith(func(p *corev1.PodSpec) { p.Tolerations = []corev1.Toleration{t} })
	}
	near := func(term corev1.PodAffinityTerm) func(context.Context) error {
		return specWith(func(p *corev1.PodSpec) {
			p.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}}}}
		})
	}
	asking := func(name corev1.ResourceName) func(context.Context) error {
		return specWith(func(p *corev1.PodSpec) {
			p.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse("2Mi"), corev1.ResourceMemory: resource.MustParse("2Mi")}
		})
	}
	claiming := func(change func(*corev1.PersistentVolumeClaimSpec)) func(context.Context) error {
		return created(claim("mine--default--more", change))
	}
	balancer := corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "web", translate.LabelSpace: "mine"}, Ports: []corev1.ServicePort{{Port: 80}}}
	annotated := func(o client.Object, key, value string) func(context.Context) error {
		o.SetAnnotations(map[string]string{key: value})
		return created(o)
	}
	labelled := func(o client.Object, key, value string) func(context.Context) error {
		o.GetLabels()[key] = value
		return created(o)
	}
	finalized := func(o client.Object, by string) func(context.Context) error {
		o.SetFinalizers([]string{by})
		return created(o)
	}
	owned := func(o client.Object, by metav1.OwnerReference) func(context.Context) error {
		o.SetOwnerReferences([]metav1.OwnerReference{by})
		return created(o)
	}
	draining := func(change func(*policyv1.PodDisruptionBudgetSpec)) func(context.Context) error {
		b := budget("mine--default--more")
		change(&b.Spec)
		return created(b)
	}
	patched := func(how types.PatchType, status string) func(context.Context) error {
		return func(ctx context.Context) error {
			return g.account.Status().Patch(ctx, g.pod.DeepCopy(), client.RawPatch(how, []byte(`{"status":`+status+`}`)), client.DryRunAll)
		}
	}
	status := func(s string) func(context.Context) error { return patched(types.MergePatchType, s) }
	condition := func(c string) func(context.Context) error {
		return patched(types.StrategicMergePatchType, `{"conditions":[`+c+`]}`)
	}
	isolating := policy("berth")
	runner := &corev1.ServiceAccount{ObjectMeta: meta("berth-mine", "mine--default--runner", "mine")}
	settings := configMap("berth-mine", "mine--default--settings", "mine")
	everywhere := &metav1.LabelSelector{}
	const whose, closed, conditions, gates = "only copies of the space's objects", "own pods and public addresses", "only status.conditions in the status", "that answer Berth's readiness gates"
	const identity, node, outside, posing = "that no controller of the host acts on", "may not choose nodes", "may have no spec.externalIPs", "nor the spec.serviceAccountName of Berth"
	const mounts, devices, volumes, copies, drains = "may mount only", "what the quota of the space names", "may not choose a volume", "may copy claims", "spec.minAvailable"
	const fields = "only the fields that Berth needs"
	const address = "may choose neither spec.loadBalancerIP"
	data := claim("mine--default--data", func(*corev1.PersistentVolumeClaimSpec) {})
	written := &corev1.Service{ObjectMeta: meta("berth-mine", "mine--default--hand", "mine"), Spec: corev1.ServiceSpec{Ports: ports(1)}}
	wide := &corev1.Service{ObjectMeta: meta("berth-mine", "mine--default--wide", "mine"), Spec: corev1.ServiceSpec{Ports: ports(101), Selector: balancer.Selector}}
	for _, s := range []*corev1.Service{written, wide} {
		if err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error { return g.admin.Create(t.Context(), s) }); err != nil {
			t.Fatal(err)
		}
	}
	for name, attack := range map[string]struct {
		try  func(context.Context) error
		says string
	}{
		"remove an isolation policy":        {deleted(isolating), whose},
		"open an isolation policy":          {existing(isolating, func() { isolating.Spec = policy("", mine.Everyone()...).Spec }), whose},
		"remove the policy on egress":       {deleted(policy("berth-egress")), whose},
		"a policy that looks like Berth's":  {created(policy("berth-open", mine.Everyone()...)), whose},
		"a policy for everyone":             {opening(), closed},
		"a policy for other spaces":         {opening(networkingv1.NetworkPolicyPeer{NamespaceSelector: everywhere}), closed},
		"a policy for pods of other spaces": {opening(networkingv1.NetworkPolicyPeer{NamespaceSelector: everywhere, PodSelector: everywhere}), closed},
		"a policy with one such peer":       {opening(append(mine.Everyone(), networkingv1.NetworkPolicyPeer{NamespaceSelector: everywhere})...), closed},
		"a policy for a look-alike": {opening(mine.Everyone()[0], networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{translate.LabelReachesPods: "false"},
		}}), closed},
		"a policy for more than those": {opening(mine.Everyone()[0], networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{translate.LabelReachesPods: "true", translate.LabelSpace: "theirs"},
		}}), closed},
		"a policy for others by a key": {opening(mine.Everyone()[0], networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: translate.LabelReachesPods, Operator: metav1.LabelSelectorOpDoesNotExist}},
		}}), closed},
		"a way out to those who may come in": {opening(mine.Callers()...), closed},
		"a policy for all addresses":         {opening(block("0.0.0.0/0")), closed},
		"a policy for half of the private":   {opening(block("0.0.0.0/0", "10.0.0.0/9", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")), closed},
		"a policy for the metadata service":  {opening(block("169.254.169.254/32")), closed},
		"a policy for a private network":     {opening(block("10.1.0.0/16")), closed},
		"a policy for what the admin closed": {opening(block("203.0.113.0/25")), closed},
		"a policy around that":               {opening(block("203.0.112.0/20")), closed},
		"a policy for Azure's services":      {opening(block("168.63.129.16/32")), closed},
		"a policy for NAT64":                 {opening(block("64:ff9b::/96")), closed},
		"a policy around a private network":  {opening(block("8.0.0.0/6", "8.8.8.8/32")), closed},
		"a policy for all of IPv6":           {opening(block("::/0", "fe80::/10")), closed},
		"a private address in IPv6":          {opening(block("::ffff:10.0.0.0/104")), ""},
		"an address in another spelling":     {opening(block("010.0.0.0/8")), ""},
		"an existing policy that opens": {func(ctx context.Context) error {
			p := policy("mine--default--web")
			return existing(p, func() { p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}} })(ctx)
		}, closed},

		"another's address":           {status(`{"podIP":"10.244.9.9","podIPs":[{"ip":"10.244.9.9"}]}`), conditions},
		"another's address as well":   {status(`{"podIPs":[{"ip":"` + g.pod.Status.PodIP + `"},{"ip":"fd00::9"}]}`), conditions},
		"a phase":                     {status(`{"phase":"Succeeded"}`), conditions},
		"an image":                    {status(`{"containerStatuses":[{"name":"c","image":"i","imageID":"x","ready":true,"restartCount":0}]}`), conditions},
		"no address":                  {status(`{"podIP":null,"podIPs":null}`), conditions},
		"the pod's readiness":         {condition(`{"type":"Ready","status":"False"}`), gates},
		"no such condition":           {condition(`{"type":"PodScheduled","$patch":"delete"}`), gates},
		"a gate that the pod has not": {condition(`{"type":"` + pod.GatePrefix + `none","status":"True"}`), gates},

		"become nobody":           {deleted(&corev1.ServiceAccount{ObjectMeta: meta("berth-mine", "default", "mine")}), whose},
		"become undying":          {deleted(&corev1.ServiceAccount{ObjectMeta: meta("berth-mine", syncer.ServiceAccount, "mine")}), whose},
		"an account like Berth's": {created(&corev1.ServiceAccount{ObjectMeta: meta("berth-mine", "berth-other", "mine")}), whose},
		"a cloud's identity":      {existing(runner, func() { runner.Annotations = map[string]string{"eks.amazonaws.com/role-arn": "admin"} }), identity},
		"run as Berth":            {podWith(func(p *corev1.Pod) { p.Spec.ServiceAccountName = syncer.ServiceAccount }), posing},
		"a node":                  {podWith(func(p *corev1.Pod) { p.Spec.NodeName = "host-node-1" }), node},
		"put everybody out":       {podWith(func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }), posing},
		"a kind of node":          {specWith(func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{"pool": "databases"} }), node},
		"a node, by affinity": {specWith(func(p *corev1.PodSpec) {
			p.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "pool", Operator: corev1.NodeSelectorOpExists}}}},
			}}}
		}), node},
		"a node with a label": {specWith(func(p *corev1.PodSpec) {
			p.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "pool", MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: everywhere}}
		}), node},
		"a node with pods of others":   {near(corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: everywhere, Namespaces: []string{"kube-system"}}), node},
		"a node with pods of all":      {near(corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: everywhere, NamespaceSelector: everywhere}), node},
		"near, by another label":       {near(corev1.PodAffinityTerm{TopologyKey: "pool", LabelSelector: everywhere}), node},
		"all nodes that are set apart": {tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}), node},
		"the control plane's nodes":    {tolerating(corev1.Toleration{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists}), node},
		"nodes that are drained":       {tolerating(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}), node},
		"such nodes, later": {existing(g.pod, func() {
			g.pod.Spec.Tolerations = append(g.pod.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
		}), node},
		"a file server, from the node":   {mounting(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "10.0.0.1", Path: "/"}}), mounts},
		"a disk, from the node":          {mounting(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.2001-04.com.example:storage.disk1"}}), mounts},
		"a driver's volume":              {mounting(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets.example.com"}}), mounts},
		"a claim that the host makes":    {mounting(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claim("", func(c *corev1.PersistentVolumeClaimSpec) { c.Selector = everywhere }).Spec}}}), mounts},
		"a token of the host's API":      {token("mine--default--runner", ""), mounts},
		"a token of the default account": {token("default", "anything"), mounts},
		"a token by default":             {specWith(func(p *corev1.PodSpec) { p.AutomountServiceAccountToken = ptr.To(true) }), mounts},
		"a device":                       {asking("example.com/gpu"), devices},
		"huge pages":                     {asking("hugepages-2Mi"), devices},
		"a claim on devices": {specWith(func(p *corev1.PodSpec) {
			p.ResourceClaims = []corev1.PodResourceClaim{{Name: "d", ResourceClaimName: ptr.To("devices")}}
		}), devices},

		"a claim of a class that no quota names": {created(&resourcev1.ResourceClaim{ObjectMeta: meta("berth-mine", "mine--default--d", "mine"), Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "fast"}}},
		}}}), "fields that Berth needs of resourceclaims"},
		"a claim of no devices": {created(&resourcev1.ResourceClaim{ObjectMeta: meta("berth-mine", "mine--default--d", "mine")}), "need a request"},

		"a volume of the host's": {claiming(func(c *corev1.PersistentVolumeClaimSpec) { c.VolumeName = "backups" }), volumes},
		"a volume by its labels": {claiming(func(c *corev1.PersistentVolumeClaimSpec) {
			c.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}), volumes},
		"any volume by hand":     {claiming(func(c *corev1.PersistentVolumeClaimSpec) { c.StorageClassName = ptr.To("") }), volumes},
		"any such, as of old":    {annotated(claim("mine--default--more", func(*corev1.PersistentVolumeClaimSpec) {}), "volume.beta.kubernetes.io/storage-class", ""), volumes},
		"a node for a volume":    {annotated(claim("mine--default--more", func(*corev1.PersistentVolumeClaimSpec) {}), "volume.kubernetes.io/selected-node", "host-node-1"), identity},
		"attributes of a volume": {claiming(func(c *corev1.PersistentVolumeClaimSpec) { c.VolumeAttributesClassName = ptr.To("fast") }), volumes},
		"a volume, later":        {existing(data, func() { data.Spec.VolumeName = "backups" }), volumes},
		"data of anything": {claiming(func(c *corev1.PersistentVolumeClaimSpec) {
			c.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "Backup", Name: "theirs"}
		}), copies},

		"an address for a balancer":  {service(corev1.ServiceSpec{Type: balancer.Type, Selector: balancer.Selector, LoadBalancerIP: "192.0.2.1"}), address},
		"such an address, annotated": {annotated(&corev1.Service{ObjectMeta: meta("berth-mine", "mine--default--lb", "mine"), Spec: balancer}, "metallb.io/loadBalancerIPs", "192.0.2.1"), identity},

		"a drain without an end": {draining(func(b *policyv1.PodDisruptionBudgetSpec) { b.MinAvailable = ptr.To(intstr.FromString("100%")) }), drains},
		"a drain that begins nowhere": {draining(func(b *policyv1.PodDisruptionBudgetSpec) {
			b.MinAvailable, b.MaxUnavailable = nil, ptr.To(intstr.FromInt32(0))
		}), drains},
		"a drain of broken pods": {draining(func(b *policyv1.PodDisruptionBudgetSpec) { b.UnhealthyPodEvictionPolicy = nil }), drains},

		// What a host let through: finding S14.
		"a load balancer's class":       {service(with(balancer, func(s *corev1.ServiceSpec) { s.LoadBalancerClass = ptr.To("internal.example.com/vpn") })), address},
		"another scheduler":             {specWith(func(p *corev1.PodSpec) { p.SchedulerName = "theirs" }), fields},
		"another namespace's secret":    {annotated(secret(), "replicator.v1.mittwald.de/replicate-from", "kube-system/admin"), identity},
		"a config map for others":       {annotated(configMap("berth-mine", "mine--default--x", "mine"), "reflector.v1.k8s.emberstack.com/reflection-auto-enabled", "true"), identity},
		"an injector's annotation":      {annotated(hostPod("mine--default--x"), "vault.hashicorp.com/agent-inject", "true"), identity},
		"a dashboard":                   {labelled(configMap("berth-mine", "mine--default--x", "mine"), "grafana_dashboard", "1"), identity},
		"a cluster of Argo CD's":        {labelled(secret(), "argocd.argoproj.io/secret-type", "cluster"), identity},
		"what stays for ever":           {finalized(configMap("berth-mine", "mine--default--x", "mine"), "example.com/never"), identity},
		"what ends with a node":         {owned(configMap("berth-mine", "mine--default--x", "mine"), metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u"}), identity},
		"a secret that keeps its owner": {owned(secret(), metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "mine--default--web", UID: "u", BlockOwnerDeletion: ptr.To(true)}), identity},
		"ten thousand ports":            {service(corev1.ServiceSpec{Ports: ports(10_000)}), "may have at most 100 ports"},
		"a rule on each node for each of a million": {created(&discoveryv1.EndpointSlice{
			ObjectMeta: meta("berth-mine", "mine--default--x", "mine"), AddressType: discoveryv1.AddressTypeIPv4, Ports: make([]discoveryv1.EndpointPort, 0), Endpoints: addresses(1001),
		}), "may have at most 1000 addresses"},
		"the metadata service's address": {created(&discoveryv1.EndpointSlice{
			ObjectMeta: meta("berth-mine", "mine--default--x", "mine"), AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"168.63.129.16"}}},
		}), "special on the host's network"},
		"an end in years": {specWith(func(p *corev1.PodSpec) { p.TerminationGracePeriodSeconds = ptr.To(int64(100_000_000)) }), fields},
		"an end in years, when it ends": {func(ctx context.Context) error {
			return g.account.Delete(ctx, g.pod.DeepCopy(), client.DryRunAll, client.GracePeriodSeconds(100_000_000))
		}, "3600 seconds as terminationGracePeriodSeconds"},
		"nodes beside a runtime's": {specWith(func(p *corev1.PodSpec) {
			p.RuntimeClassName, p.Tolerations = ptr.To("sandboxed"), []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}), "or of their runtime class"},
		"a kind of node beside a runtime's": {specWith(func(p *corev1.PodSpec) {
			p.RuntimeClassName, p.NodeSelector = ptr.To("sandboxed"), map[string]string{"pool": "databases"}
		}), "or of their runtime class"},
		"a profile of the nodes'": {specWith(func(p *corev1.PodSpec) {
			p.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("open.json")}}
		}), fields},
		"others' files, by their level": {specWith(func(p *corev1.PodSpec) {
			p.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c1,c2"}
		}), fields},
		"the host's own secret":   {mounting(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "registry"}}), mounts},
		"a backend of the host's": {created(ingress(func(s *networkingv1.IngressSpec) { s.Rules[0].HTTP.Paths[0].Backend.Service.Name = "dashboard" })), fields},
		"all host names":          {created(ingress(func(s *networkingv1.IngressSpec) { s.Rules[0].Host = "*.example.com" })), "a host without wildcard"},
		"a controller's snippet":  {annotated(ingress(func(*networkingv1.IngressSpec) {}), "nginx.ingress.kubernetes.io/server-snippet", "x"), identity},

		"a token of Berth's":           {created(tokenSecret(syncer.ServiceAccount)), "may not have the type kubernetes.io/service-account-token"},
		"others' addresses":            {service(corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}}), outside},
		"a port for others' endpoints": {service(corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}), outside},
		"such a port, while they are there": {existing(written, func() {
			written.Spec.Type, written.Spec.Selector = corev1.ServiceTypeNodePort, balancer.Selector
		}), outside},
		"more ports, later": {existing(wide, func() { wide.Spec.Ports = ports(102) }), "may have at most 100 ports"},

		"a pod without an owner":          {created(&corev1.Pod{ObjectMeta: meta("berth-mine", "mine--default--x", ""), Spec: g.pod.Spec}), whose},
		"a pod like the host's":           {created(hostPod("coredns")), whose},
		"give up a pod":                   {existing(g.pod, func() { g.pod.Labels = nil }), whose},
		"an object without an owner":      {created(configMap("berth-mine", "mine--default--x", "")), whose},
		"an object of another space's":    {created(configMap("berth-mine", "theirs--default--x", "theirs")), whose},
		"what the host has there":         {deleted(configMap("berth-mine", "kube-root-ca.crt", "")), whose},
		"give up what it made":            {existing(settings, func() { settings.Labels = nil }), whose},
		"the nameserver as a config":      {created(configMap("berth-mine", translate.DNSServiceName, "mine")), whose},
		"another space's, by RBAC":        {deleted(configMap("berth-theirs", "theirs--default--x", "theirs")), `cannot delete resource "configmaps"`},
		"another space's policy, by RBAC": {deleted(&networkingv1.NetworkPolicy{ObjectMeta: meta("berth-theirs", "berth", "theirs")}), `cannot delete resource "networkpolicies"`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := attack.try(t.Context()); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), attack.says) {
				t.Errorf("got %v, want it refused with %q", err, attack.says)
			}
		})
	}
}

// M4: a host converts an object anew for each policy that it meets, and one that
// meets none is not checked.
func TestEachResourceThatAccountsWriteMeetsOnePolicy(t *testing.T) {
	met := map[string]int{}
	for _, policy := range []admissionv1.ValidatingAdmissionPolicySpec{isolation.PodPolicy(), isolation.AccountPolicy()} {
		for _, rule := range policy.MatchConstraints.ResourceRules {
			for _, resource := range rule.Resources {
				met[rule.APIGroups[0]+"/"+resource]++
			}
		}
	}
	for _, right := range append(isolation.AccountRules(), isolation.MoreRules(everyResource(t))...) {
		if !slices.ContainsFunc(right.Verbs, func(v string) bool { return v == "update" || v == "patch" || v == "delete" }) {
			continue
		}
		want := 1
		if right.APIGroups[0] == v1alpha1.GroupVersion.Group {
			want = 0 // the operator checks what it reads
		}
		for _, resource := range right.Resources {
			if n := met[right.APIGroups[0]+"/"+resource]; n != want {
				t.Errorf("%s meets %d policies", resource, n)
			}
		}
	}
	for _, rule := range isolation.PodPolicy().Validations {
		if strings.Contains(rule.Expression, "request.resource") {
			t.Errorf("pods meet what is about others: %s", rule.Expression)
		}
	}
}
