// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
)

// Surroundings are the objects of the space that a pod's translation reads
// besides the pod itself.
type Surroundings struct {
	// API is the space's Service default/kubernetes; nil leaves empty the
	// environment that points at their API.
	API *corev1.Service
	// Services of the pod's namespace, for its service links.
	Services []*corev1.Service
	// Namespaces of the space, to resolve namespace selectors.
	Namespaces []*corev1.Namespace
	// Policies and Budgets are those of the space, or of the pod's namespace at
	// least, that take effect on the host.
	Policies []*networkingv1.NetworkPolicy
	Budgets  []*policyv1.PodDisruptionBudget
	// Account is the pod's service account; nil if labels of the pod don't depend on it.
	Account *corev1.ServiceAccount
}

// ToHost is v's host object. v must have passed [Check] and [CheckSettings]: what they refuse is
// left out here, so that a pod that slipped by is weaker, never stronger.
//
// The spec is built field by field, so that a field that Kubernetes adds stays
// in the space until someone decides about it; docs/reference/pods.md tells each field's
// outcome. Ephemeral containers are among what is wanted, but a host takes them
// only by a request of their own, see [ForCreate] and [AddEphemeral].
func ToHost(s translate.Space, v *corev1.Pod, in Surroundings) *corev1.Pod {
	host := &corev1.Pod{ObjectMeta: podMeta(s, v, in)}
	for key, value := range downwardAnnotations(v) {
		host.Annotations[key] = value
	}
	if v.Spec.Hostname != "" && v.Spec.Subdomain != "" {
		host.Annotations[translate.AnnotationSubdomain] = v.Spec.Subdomain
	}
	p := v.Spec.DeepCopy()
	env, _ := serviceEnv(v, in) // see CheckServiceLinks
	host.Spec = corev1.PodSpec{
		Volumes:                       volumes(s, v),
		InitContainers:                containers(s, v, p.InitContainers, env),
		Containers:                    containers(s, v, p.Containers, env),
		EphemeralContainers:           ephemeral(s, v, p.EphemeralContainers, env),
		RestartPolicy:                 p.RestartPolicy,
		TerminationGracePeriodSeconds: p.TerminationGracePeriodSeconds,
		ActiveDeadlineSeconds:         p.ActiveDeadlineSeconds,
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		ShareProcessNamespace:         p.ShareProcessNamespace,
		SecurityContext:               p.SecurityContext,
		ImagePullSecrets:              localReferences(s, v.Namespace, p.ImagePullSecrets),
		Hostname:                      hostname(v),
		HostnameOverride:              hostnameOverride(s, v),
		ReadinessGates:                gates(v),
		Affinity:                      affinity(s, v, in.Namespaces),
		TopologySpreadConstraints:     topologySpread(s, v),
		Tolerations:                   tolerations(s.Settings.Counted, p),
		HostAliases:                   p.HostAliases,
		OS:                            p.OS,
		HostUsers:                     p.HostUsers,
		Resources:                     p.Resources,
		ResourceClaims:                resourceClaims(s, v),
	}
	host.Spec.DNSPolicy, host.Spec.DNSConfig = dns(s, v)
	capGrace(&host.Spec)
	weaken(host)
	secure(s.Settings.PodSecurity, &host.Spec)
	dropUncounted(&s.Settings, &host.Spec)
	replaceTopologies(&host.Spec)
	return host
}

// podMeta is a host pod's metadata, without what containers read of it.
func podMeta(s translate.Space, v *corev1.Pod, in Surroundings) metav1.ObjectMeta {
	m := s.ObjectMeta(v, translate.LimitSubdomain)
	s.AddLabels(&m, v.Labels)
	translate.AddPoliced(&m, v, in.Policies)
	s.AddBudget(&m, v, in.Budgets)
	addBandwidth(s.Settings.Bandwidth, &v.ObjectMeta, &m)
	if in.Account != nil {
		maps.Copy(m.Labels, s.Settings.WorkloadIdentity.PodLabels(in.Account.Annotations, v.Labels))
	}
	return m
}

// PushLabels copies onto the host pod have the labels that v's should have, and
// nothing else: by these Services, policies and budgets select it, whether or not a
// pod like v may still be made. It reports whether anything differed.
func PushLabels(s translate.Space, v *corev1.Pod, in Surroundings, have *corev1.Pod) bool {
	want := &corev1.Pod{ObjectMeta: podMeta(s, v, in)}
	keepNodeLabels(want, have)
	if maps.Equal(want.Labels, have.Labels) {
		return false
	}
	have.Labels = want.Labels
	return true
}

// ForCreate is the part of a wanted host pod that a host takes in a create.
func ForCreate(want *corev1.Pod) *corev1.Pod {
	if len(want.Spec.EphemeralContainers) == 0 {
		return want
	}
	created := want.DeepCopy()
	created.Spec.EphemeralContainers = nil
	return created
}

// Push copies onto the host pod have what may still change in the wanted
// one: the tenant's labels, Berth's annotations, images and the deadline. It
// reports whether anything differed.
func Push(want, have *corev1.Pod) bool {
	keepNodeLabels(want, have)
	changed := translate.PushMeta(want, have)
	push := func(want, have []corev1.Container) {
		for i := range have { // by name: the host may have put containers of its own among them
			j := slices.IndexFunc(want, func(c corev1.Container) bool { return c.Name == have[i].Name })
			if j >= 0 && have[i].Image != want[j].Image {
				have[i].Image, changed = want[j].Image, true
			}
		}
	}
	push(want.Spec.InitContainers, have.Spec.InitContainers)
	push(want.Spec.Containers, have.Spec.Containers)
	if d := want.Spec.ActiveDeadlineSeconds; d != nil && !ptr.Equal(d, have.Spec.ActiveDeadlineSeconds) {
		have.Spec.ActiveDeadlineSeconds, changed = d, true
	}
	return changed
}

// Gated reports whether the tenant still holds the pod back from scheduling:
// until the gates are gone it has no host object.
func Gated(v *corev1.Pod) bool { return len(v.Spec.SchedulingGates) > 0 }

// tolerations keeps those of failing nodes, which only shorten or lengthen a
// pod's stay, and those of nodes with a resource that the pod requests: by convention,
// they have a taint of its name. Any other would let a tenant onto nodes that were set apart.
func tolerations(counted translate.Counted, spec *corev1.PodSpec) []corev1.Toleration {
	requested := map[string]bool{corev1.TaintNodeNotReady: true, corev1.TaintNodeUnreachable: true}
	eachResources(nil, spec, func(_ *field.Path, r *corev1.ResourceRequirements) {
		for name := range r.Limits { // the same as the requests
			if slices.Contains(counted, name) {
				requested[string(name)] = true
			}
		}
	})
	var kept []corev1.Toleration
	for _, t := range spec.Tolerations {
		if requested[t.Key] {
			kept = append(kept, *t.DeepCopy())
		}
	}
	return kept
}

func localReferences(s translate.Space, namespace string, refs []corev1.LocalObjectReference) []corev1.LocalObjectReference {
	var out []corev1.LocalObjectReference
	for _, ref := range refs {
		if ref.Name != "" {
			out = append(out, corev1.LocalObjectReference{Name: s.HostName(namespace, ref.Name, translate.LimitSubdomain)})
		}
	}
	return out
}

// References are the names, in the pod's namespace, of the objects that must
// be on the host for v to run.
type References struct {
	ConfigMaps, Secrets []types.NamespacedName
}

// ReferencesOf lists what v refers to, each name once per mention.
func ReferencesOf(v *corev1.Pod) References {
	var refs References
	configMap := func(name string) {
		if name != "" {
			refs.ConfigMaps = append(refs.ConfigMaps, types.NamespacedName{Namespace: v.Namespace, Name: name})
		}
	}
	secret := func(name string) {
		if name != "" {
			refs.Secrets = append(refs.Secrets, types.NamespacedName{Namespace: v.Namespace, Name: name})
		}
	}
	for _, ref := range v.Spec.ImagePullSecrets {
		secret(ref.Name)
	}
	for i := range v.Spec.Volumes {
		visitVolume(&v.Spec.Volumes[i], func(ref *string) { configMap(*ref) }, func(ref *string) { secret(*ref) })
	}
	eachContainer(&v.Spec, func(c *corev1.Container) {
		visitEnv(c, func(ref *string) { configMap(*ref) }, func(ref *string) { secret(*ref) })
	})
	return refs
}

// keepNodeLabels has want keep what the host tells of have's node.
func keepNodeLabels(want, have *corev1.Pod) {
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		if value, ok := have.Labels[key]; ok {
			want.Labels[key] = value
		}
	}
}
