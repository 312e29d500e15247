// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
)

// policedHost is a host with policies for the account of the space mine, and with a
// pod, a policy and a service account that were synced.
type policedHost struct {
	admin, account client.Client
	space          translate.Space
	pod            *corev1.Pod
}

// mine is the space whose account is in the wrong hands.
var mine = translate.Space{Name: "mine", Closed: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}

// gate is the condition by which the host's pod has a readiness gate of the tenant's.
const gate = pod.GatePrefix + "tenants-own"

func startPolicedHost(t *testing.T) *policedHost {
	t.Helper()
	config, ctx := startCluster(t), t.Context()
	g := &policedHost{admin: clientOf(t, config), space: mine}
	older := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "berth-space-accounts"}, Spec: isolation.AccountPolicy(),
	}
	older.Spec.MatchConstraints.ResourceRules = append(older.Spec.MatchConstraints.ResourceRules, isolation.PodPolicy().MatchConstraints.ResourceRules...)
	older.Spec.Variables = []admissionv1.Variable{{Name: "nothing", Expression: "false"}}
	older.Spec.Validations = []admissionv1.Validation{{Expression: "variables.nothing", Message: "an older Berth's policy was not replaced"}}
	//nolint:staticcheck // as InstallPolicies does
	if err := g.admin.Patch(ctx, older, client.Apply, client.FieldOwner("berth-tenancy")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it is repeatable
		if err := isolation.InstallPolicies(ctx, g.admin, resources.SyncOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	sandboxed := &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "sandboxed"}, Handler: "sandboxed",
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"runtime": "sandboxed"}, Tolerations: []corev1.Toleration{{Key: "sandboxed", Operator: corev1.TolerationOpExists}}},
	}
	if err := g.admin.Create(ctx, sandboxed); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mine", "theirs"} {
		if err := isolation.Apply(ctx, g.admin, translate.Space{Name: name, Closed: mine.Closed}, nil, isolation.Syncing(everyResource(t))); err != nil {
			t.Fatal(err)
		}
	}
	posing := rest.CopyConfig(config)
	posing.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:berth-mine:" + syncer.ServiceAccount,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:berth-mine", "system:authenticated"},
	}
	g.account = clientOf(t, posing)
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := isolation.WaitEnforced(waiting, g.account, g.space); err != nil {
		t.Fatal(err)
	}
	for policy, probe := range map[string]client.Object{"berth-space-accounts": configMap("berth-mine", "probe", "mine"), "berth-space-pods": hostPod("probe")} {
		if err := g.account.Create(ctx, probe, client.DryRunAll); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"' with binding '"+policy+"' denied request: a space's account") {
			t.Fatalf("the host does not enforce %s: %v", policy, err)
		}
	}
	// The host's admission takes a moment to see a runtime class, which is what its policy compares with.
	probe := hostPod("mine--default--probe")
	probe.Spec.RuntimeClassName, probe.Spec.NodeSelector = ptr.To("sandboxed"), map[string]string{"pool": "databases"}
	if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return apierrors.IsForbidden(g.account.Create(ctx, probe.DeepCopy(), client.DryRunAll)), nil
	}); err != nil {
		t.Fatal("the host does not compare pods with their runtime class")
	}
	g.pod = hostPod("mine--default--web")
	g.pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
	for _, o := range []client.Object{
		g.pod, policy("mine--default--web", mine.Everyone()...),
		&corev1.ServiceAccount{ObjectMeta: meta("berth-mine", "mine--default--runner", "mine")}, configMap("berth-mine", "mine--default--settings", "mine"),
		claim("mine--default--data", func(c *corev1.PersistentVolumeClaimSpec) { c.StorageClassName = ptr.To("unbound") }), budget("mine--default--web"),
	} {
		if err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error { return g.account.Create(ctx, o) }); err != nil {
			t.Fatalf("what syncers make is refused: %v", err)
		}
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := g.admin.Get(ctx, client.ObjectKeyFromObject(g.pod), g.pod)
		return g.pod.Status.Phase == corev1.PodRunning && g.pod.Status.PodIP != "", err
	})
	if err != nil {
		t.Fatal("the pod does not run")
	}
	return g
}

// everyKind has those synced, too, that are off by default.
func everyResource(t *testing.T) resources.SyncOptions {
	t.Helper()
	syncOptions, err := resources.Parse([]string{"poddisruptionbudgets=on", "serviceaccounts=on", "volumesnapshots=on", "resourceclaims=on"})
	if err != nil {
		t.Fatal(err)
	}
	return syncOptions
}

func meta(namespace, name, space string) metav1.ObjectMeta {
	o := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if space != "" {
		o.Labels = map[string]string{translate.LabelSpace: space}
	}
	return o
}

func configMap(namespace, name, space string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: meta(namespace, name, space)}
}

func hostPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: meta("berth-mine", name, "mine"), Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "i"}}, AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
		SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
	}}
}

func claim(name string, change func(*corev1.PersistentVolumeClaimSpec)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: meta("berth-mine", name, "mine"), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	change(&c.Spec)
	return c
}

func budget(name string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: meta("berth-mine", name, "mine"), Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{translate.LabelBudget: name}}, UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
	}}
}

// policy lets its peers in and out.
func policy(name string, peers ...networkingv1.NetworkPolicyPeer) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: meta("berth-mine", name, "mine"), Spec: networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: peers}},
		Egress:      []networkingv1.NetworkPolicyEgressRule{{To: peers}},
	}}
}

func block(cidr string, except ...string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}
}

func tokenSecret(account string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: meta("berth-mine", "mine--default--token", "mine"), Type: corev1.SecretTypeServiceAccountToken}
	secret.Annotations = map[string]string{corev1.ServiceAccountNameKey: account}
	return secret
}

// fullPod asks for all that a pod of a space's may have of its nodes and volumes.
func fullPod() *corev1.Pod {
	term := corev1.PodAffinityTerm{TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "full", UID: "u"}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i", Image: "i"}},
		Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("1Mi"),
		}}}},
		ServiceAccountName: "runner", AutomountServiceAccountToken: ptr.To(true),
		Tolerations: []corev1.Toleration{
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(3))},
			{Key: "pool", Operator: corev1.TolerationOpExists}, // which stays in the space
		},
		Affinity: &corev1.Affinity{
			PodAffinity:     &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}},
			PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}}},
		},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: corev1.LabelHostname, MaxSkew: 1, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{}}},
	}}
	for name, source := range map[string]corev1.VolumeSource{
		"config":  {ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}}},
		"secret":  {Secret: &corev1.SecretVolumeSource{SecretName: "a"}},
		"empty":   {EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}},
		"claim":   {PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a"}},
		"image":   {Image: &corev1.ImageVolumeSource{Reference: "i"}},
		"scratch": {Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}},
		"pod":     {DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{Path: "n", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
		"token": {Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}, {ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "ns", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
		}}},
	} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	}
	return pod
}

func secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: meta("berth-mine", "mine--default--x", "mine")}
}

func ingress(change func(*networkingv1.IngressSpec)) *networkingv1.Ingress {
	i := &networkingv1.Ingress{ObjectMeta: meta("berth-mine", "mine--default--x", "mine"), Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
		Host: "a.example.com", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
			Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix),
			Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "mine--default--web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
		}}}},
	}}}}
	change(&i.Spec)
	return i
}

func ports(n int) (all []corev1.ServicePort) {
	for i := range n {
		all = append(all, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(i + 1)})
	}
	return all
}

func addresses(n int) (all []discoveryv1.Endpoint) {
	for i := range n {
		if i%100 == 0 {
			all = append(all, discoveryv1.Endpoint{})
		}
		e := &all[len(all)-1]
		e.Addresses = append(e.Addresses, fmt.Sprintf("10.1.%d.%d", i/100, i%100+1))
	}
	return all
}

func with[T any](value T, change func(*T)) T {
	change(&value)
	return value
}
