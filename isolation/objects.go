// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/netrange"
	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// objectName is the name of a space's ResourceQuota, LimitRange, and NetworkPolicies.
const objectName = "berth"

// Objects returns the host objects that isolate a space, and must exist before all other objects of the space: its
// namespace with a Pod Security level, quota, limits, network policies, and the syncer's own account, which has no
// rights outside the namespace. A nil quota means the default.
func Objects(space translate.Space, quota corev1.ResourceList, options ...Option) []client.Object {
	o := set(options)
	switch {
	case o.place != nil:
		quota = nil
	case quota == nil:
		quota = v1alpha1.DefaultQuota()
	}
	return slices.Concat([]client.Object{
		namespace(space, o),
		&corev1.ResourceQuota{TypeMeta: kind("v1", "ResourceQuota"), ObjectMeta: meta(space, objectName), Spec: corev1.ResourceQuotaSpec{Hard: quota}},
	}, scopedQuotas(space, o.scoped), []client.Object{limits(space, o.limits)}, networkPolicies(space), account(space, o))
}

// NewQuota returns the ResourceQuota of a space on the host, without numbers.
func NewQuota(space translate.Space) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: meta(space, objectName)}
}

// QuotaKey returns the namespace and name of a space's ResourceQuota on the host.
func QuotaKey(space translate.Space) client.ObjectKey {
	return client.ObjectKey{Namespace: space.HostNamespace(), Name: objectName}
}

func kind(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// meta returns the metadata of an isolation object of the space. It has no virtual identity, so that the syncer ignores
// the object.
func meta(space translate.Space, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: space.HostNamespace(),
		Labels: map[string]string{translate.LabelSpace: space.Name, translate.LabelManagedBy: translate.ManagedBy},
	}
}

func namespace(space translate.Space, o settings) *corev1.Namespace {
	ns := &corev1.Namespace{TypeMeta: kind("v1", "Namespace"), ObjectMeta: meta(space, space.HostNamespace())}
	ns.Namespace = ""
	own := ns.Labels
	ns.Labels, ns.Annotations = map[string]string{}, map[string]string{}
	maps.Copy(ns.Labels, o.labels)
	maps.Copy(ns.Labels, own)
	maps.Copy(ns.Annotations, o.annotations)
	if space.Platform != "" {
		ns.Labels[translate.LabelPlatform] = space.Platform
	}
	if space.Store != "" {
		ns.Annotations[translate.AnnotationStore] = space.Store
	}
	for key, list := range map[string][]string{
		translate.AnnotationWorkloadIdentity: space.Settings.WorkloadIdentity.Strings(),
		translate.AnnotationPlacement:        {o.where.String()}, translate.AnnotationPriorities: {space.Settings.Priorities.String()}, hostpolicy.AnnotationClosed: netrange.Strings(space.Closed),
		hostpolicy.AnnotationIngress: o.ingress, hostpolicy.AnnotationPodSecurity: hostpolicy.PodSecurity(space.Settings.PodSecurity),
		hostpolicy.AnnotationPodResources: space.Settings.Counted.Strings(), hostpolicy.AnnotationPodBandwidth: hostpolicy.PodBandwidth(space.Settings.Bandwidth),
	} {
		if said := strings.Join(list, ","); said != "" {
			ns.Annotations[key] = said
		}
	}
	ns.Labels[podsecurity.EnforceLevelLabel] = string(cmp.Or(space.Settings.PodSecurity.Level, translate.PodSecurityLevel))
	ns.Labels[podsecurity.EnforceVersionLabel] = podsecurity.VersionLatest
	return ns
}

// limits returns a LimitRange with defaults for containers that request nothing, because the quota counts only what is
// requested.
func limits(space translate.Space, items []corev1.LimitRangeItem) *corev1.LimitRange {
	return &corev1.LimitRange{
		TypeMeta: kind("v1", "LimitRange"), ObjectMeta: meta(space, objectName),
		Spec: corev1.LimitRangeSpec{Limits: Limits(items)},
	}
}

// Limits returns the limits of the LimitRange of a space that is to have these, and the defaults if there are none.
func Limits(items []corev1.LimitRangeItem) []corev1.LimitRangeItem {
	if len(items) == 0 {
		items = []corev1.LimitRangeItem{{
			Type:    corev1.LimitTypeContainer,
			Default: translate.DefaultLimits(),
			DefaultRequest: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
				corev1.ResourceEphemeralStorage: resource.MustParse("64Mi"),
			},
		}}
	}
	return items
}

// networkPolicies let a space's pods communicate with each other, with their DNS, and with the internet, but not with
// other spaces, private ranges of the host's networks, or the cloud's metadata service. They allow traffic from public
// addresses, and, of other pods, only from namespaces that the admin labels (translate.LabelReachesPods). Whether load
// balancers and node ports preserve the client's address, instead of a private one of a node, depends on the host. So
// does whether other spaces' pods have private addresses.
//
// Policies are additive. The first one closes all pods to everything except DNS. The others each open one direction for
// the pods that no policy of the tenant selects. The tenant's policies open the remaining pods, and never more than
// these (translate.NetworkPolicy).
func networkPolicies(space translate.Space) []client.Object {
	dns := []networkingv1.NetworkPolicyPort{
		{Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To(intstr.FromInt32(53))},
		{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(53))},
	}
	system := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{
		MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem},
	}}
	policy := func(name string, spec networkingv1.NetworkPolicySpec) client.Object {
		return &networkingv1.NetworkPolicy{TypeMeta: kind("networking.k8s.io/v1", "NetworkPolicy"), ObjectMeta: meta(space, name), Spec: spec}
	}
	resolver := networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{system}, Ports: dns}
	if space.Pods.Valid() {
		resolver = inside(space.Pods)
	}
	without := func(label string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: label, Operator: metav1.LabelSelectorOpDoesNotExist}}}
	}
	return []client.Object{
		policy(objectName, networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Egress:      []networkingv1.NetworkPolicyEgressRule{resolver},
		}),
		policy(objectName+"-ingress", networkingv1.NetworkPolicySpec{
			PodSelector: without(translate.LabelPolicedIngress),
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: space.Callers()}},
		}),
		policy(objectName+"-egress", networkingv1.NetworkPolicySpec{
			PodSelector: without(translate.LabelPolicedEgress),
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress:      []networkingv1.NetworkPolicyEgressRule{{To: space.Everyone()}},
		}),
	}
}

// settings are the values that options set.
type settings struct {
	clusterRole string
	// impersonator may impersonate the space's account, see ImpersonatedBy; nil for nobody.
	impersonator *rbacv1.Subject
	// account are the rights in the space's namespace, and classes those on classes, see Syncing.
	account, classes []rbacv1.PolicyRule
	// synced are further rights in the space's namespace, see AlsoSyncing.
	synced []rbacv1.PolicyRule
	where  translate.Placement
	// ingress are the keys of annotations that are synced with ingresses.
	ingress []string
	// place writes the quota, see QuotaPlacedBy.
	place func(context.Context) error
	// limits are those of the LimitRange; nil for the defaults.
	limits []corev1.LimitRangeItem
	// scoped are further quotas by name.
	scoped map[string]corev1.ResourceQuotaSpec
	// labels and annotations are those of the namespace, in addition to Berth's.
	labels, annotations map[string]string
	// dedicated are the rights of the space's own process; nil to leave them unchanged.
	dedicated *dedicatedRights
}

func set(options []Option) (s settings) {
	s.account = AccountRules()
	for _, option := range options {
		option(&s)
	}
	s.account = slices.Concat(s.account, s.synced)
	return s
}

// Option changes the objects that isolate a space.
type Option func(*settings)

// BoundTo gives the space's account the rights of an existing ClusterRole in the space's namespace, instead of a Role
// that is written there. The caller of [Apply] then needs the right to bind that role, and no right to write roles. The
// ClusterRole must have [AccountRules] and [MoreRules]. If the sync options of [Syncing] export classes, the account is
// also bound to a ClusterRole of that name with [ClassesSuffix], which must have [ClassRules]. BoundTo has no effect if
// clusterRole is empty.
func BoundTo(clusterRole string) Option { return func(s *settings) { s.clusterRole = clusterRole } }

// ImpersonatorSuffix is appended to the name of the ClusterRole of [BoundTo] for the one that allows impersonating the
// accounts of spaces.
const ImpersonatorSuffix = "-impersonator"

// ImpersonatedBy allows a user of the host, such as the platform's account, to impersonate the space's account, by a
// binding in the space's namespace. So the user does not need that right in all namespaces, where it would include the
// accounts of other platforms' spaces. It has an effect only with [BoundTo].
func ImpersonatedBy(user string) Option {
	return func(s *settings) {
		s.impersonator = &rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}
		if account, ok := strings.CutPrefix(user, serviceAccountPrefix); ok {
			namespace, name, _ := strings.Cut(account, ":")
			s.impersonator = &rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
		}
	}
}

// serviceAccountPrefix is the prefix of the user name of a service account, before NAMESPACE:NAME.
const serviceAccountPrefix = "system:serviceaccount:"

// PlacedBy restricts the space's account to a placement of pods.
func PlacedBy(where translate.Placement) Option { return func(s *settings) { s.where = where } }

// ExposedBy allows the space's account to set these annotations on ingresses.
func ExposedBy(ingressAnnotations []string) Option {
	return func(s *settings) { s.ingress = ingressAnnotations }
}

// QuotaPlacedBy has [Apply] call place instead of writing the numbers of the quota. They are the share of the space in the quota of its
// tenant, and change all the time.
func QuotaPlacedBy(place func(context.Context) error) Option {
	return func(s *settings) { s.place = place }
}

// LimitedBy sets the limits of the LimitRange. It has no effect if there are none.
func LimitedBy(limits []corev1.LimitRangeItem) Option { return func(s *settings) { s.limits = limits } }

// ScopedBy adds quotas, each for a part of the space's pods. The ResourceQuota of each is berth-NAME.
func ScopedBy(quotas map[string]corev1.ResourceQuotaSpec) Option {
	return func(s *settings) { s.scoped = quotas }
}

// LabelledBy adds labels and annotations to the namespace. Those that Berth sets take precedence.
func LabelledBy(labels, annotations map[string]string) Option {
	return func(s *settings) { s.labels, s.annotations = labels, annotations }
}

// AccountRules returns the rights of a space's account in the space's namespace: exactly those that the default sync
// options and streams need. They include writing network policies, with which the account can open what its own pods
// reach, but not what other pods reach.
func AccountRules() []rbacv1.PolicyRule { return accountRules(resources.SyncOptions{}) }

func accountRules(syncOptions resources.SyncOptions) []rbacv1.PolicyRule {
	return append(defaultRules(syncOptions), []rbacv1.PolicyRule{
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices/restricted"}, Verbs: []string{"get", "create", "update", "delete"}},
		// The mutable parts of a running pod; of its status, the conditions of readiness gates.
		{APIGroups: []string{""}, Resources: []string{"pods/ephemeralcontainers", "pods/resize"}, Verbs: []string{"update"}},
		{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
		// These are for streams (S5). A WebSocket request is a GET, for which hosts since 1.35 also require the right
		// to create. Proxies need none, because those of a space use port forwarding.
		{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods/exec", "pods/attach", "pods/portforward"}, Verbs: []string{"get", "create"}},
		{APIGroups: []string{"metrics.k8s.io"}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
		// What owners share with the tenants below. The operator checks the objects; no other part of Berth reads them.
		{APIGroups: []string{translate.Domain}, Resources: []string{sharedObjects}, Verbs: []string{"list", "create", "update", "delete"}},
	}...)
}

// inside returns a rule that lets a space's pods reach their DNS and their API, which Berth serves. They then don't
// need the host's DNS, which would list other spaces' services.
//
// The rule selects a pod instead of its address: network plugins differ in whether address blocks match pods (Cilium's
// don't), and an address changes with a restart.
func inside(pods translate.PodsEndpoint) networkingv1.NetworkPolicyEgressRule {
	berth := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(pods.Address, pods.Address.BitLen()).String()}}
	if pods.Namespace != "" {
		berth = networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: pods.Namespace}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: pods.Labels},
		}
	}
	port := func(protocol corev1.Protocol, number int32) networkingv1.NetworkPolicyPort {
		return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: ptr.To(intstr.FromInt32(number))}
	}
	return networkingv1.NetworkPolicyEgressRule{
		To: []networkingv1.NetworkPolicyPeer{berth},
		Ports: []networkingv1.NetworkPolicyPort{
			port(corev1.ProtocolUDP, pods.DNSPort), port(corev1.ProtocolTCP, pods.DNSPort), port(corev1.ProtocolTCP, pods.APIPort),
		},
	}
}

// account returns the service account that the space's syncer writes with, and its rights, in the space's namespace
// only.
func account(space translate.Space, o settings) []client.Object {
	name := syncer.ServiceAccount
	binding := &rbacv1.RoleBinding{
		TypeMeta: kind("rbac.authorization.k8s.io/v1", "RoleBinding"), ObjectMeta: meta(space, name),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: space.HostNamespace()}},
	}
	rights := []client.Object{
		&rbacv1.Role{TypeMeta: kind("rbac.authorization.k8s.io/v1", "Role"), ObjectMeta: meta(space, name), Rules: o.account},
		binding,
	}
	if o.clusterRole != "" {
		// A binding's role is immutable, so its name contains the name of the role.
		binding.Name = o.clusterRole
		binding.RoleRef.Kind, binding.RoleRef.Name = "ClusterRole", o.clusterRole
		rights = []client.Object{binding}
		if o.impersonator != nil {
			name := o.clusterRole + ImpersonatorSuffix
			rights = append(rights, &rbacv1.RoleBinding{
				TypeMeta: kind("rbac.authorization.k8s.io/v1", "RoleBinding"), ObjectMeta: meta(space, name),
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects: []rbacv1.Subject{*o.impersonator},
			})
		}
	}
	return append([]client.Object{
		// This is the account that the space's pods run as. Upstream's controller would create it too late. It has no
		// rights and gets no token.
		&corev1.ServiceAccount{
			TypeMeta: kind("v1", "ServiceAccount"), ObjectMeta: meta(space, "default"), AutomountServiceAccountToken: ptr.To(false),
		},
		&corev1.ServiceAccount{
			TypeMeta: kind("v1", "ServiceAccount"), ObjectMeta: meta(space, name), AutomountServiceAccountToken: ptr.To(false),
		},
	}, rights...)
}
