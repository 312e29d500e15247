// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"cmp"
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

	"github.com/berth-dev/berth/internal/netrange"
	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// objectName is the name of a space's ResourceQuota, LimitRange and NetworkPolicies.
const objectName = "berth"

// DefaultQuota is what a space may use of the host when nothing else is said (Q1).
func DefaultQuota() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourcePods:                     resource.MustParse("200"),
		corev1.ResourceRequestsCPU:              resource.MustParse("16"),
		corev1.ResourceRequestsMemory:           resource.MustParse("64Gi"),
		corev1.ResourceLimitsCPU:                resource.MustParse("64"),
		corev1.ResourceLimitsMemory:             resource.MustParse("128Gi"),
		corev1.ResourceRequestsEphemeralStorage: resource.MustParse("100Gi"),
		corev1.ResourceLimitsEphemeralStorage:   resource.MustParse("400Gi"),
		corev1.ResourceRequestsStorage:          resource.MustParse("500Gi"),
		corev1.ResourcePersistentVolumeClaims:   resource.MustParse("50"),
		corev1.ResourceServices:                 resource.MustParse("102"), // the API's and the DNS
		corev1.ResourceServicesLoadBalancers:    resource.MustParse("2"),
		corev1.ResourceServicesNodePorts:        resource.MustParse("5"),
		corev1.ResourceSecrets:                  resource.MustParse("1000"),
		corev1.ResourceConfigMaps:               resource.MustParse("500"),
		// The host makes one a service, too.
		"count/endpointslices.discovery.k8s.io":   resource.MustParse("306"),
		"count/ingresses.networking.k8s.io":       resource.MustParse("50"),
		"count/networkpolicies.networking.k8s.io": resource.MustParse("103"), // three are Berth's own
		"count/poddisruptionbudgets.policy":       resource.MustParse("50"),
		"count/serviceaccounts":                   resource.MustParse("203"), // three are Berth's and the host's
	}
}

// Objects returns the host objects that isolate a space, which must exist before
// any other object of the space: its namespace with a Pod Security level, quota,
// limits, network policies, and the syncer's own account, which has no right
// outside the namespace. A nil quota means the default.
func Objects(space translate.Space, quota corev1.ResourceList, options ...Option) []client.Object {
	o := set(options)
	if quota == nil {
		quota = DefaultQuota()
	}
	return slices.Concat([]client.Object{
		namespace(space, o),
		&corev1.ResourceQuota{TypeMeta: kind("v1", "ResourceQuota"), ObjectMeta: meta(space, objectName), Spec: corev1.ResourceQuotaSpec{Hard: quota}},
		limits(space, o.limits),
	}, networkPolicies(space), account(space, o))
}

// QuotaKey is where the ResourceQuota of a space is on the host.
func QuotaKey(space translate.Space) client.ObjectKey {
	return client.ObjectKey{Namespace: space.HostNamespace(), Name: objectName}
}

func kind(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// meta marks an isolation object as the space's. It records no virtual identity:
// isolation objects have none, and the syncer leaves objects without one alone.
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
		translate.AnnotationPlacement: {o.where.String()}, hostpolicy.AnnotationClosed: netrange.Strings(space.Closed),
		hostpolicy.AnnotationIngress: o.ingress, hostpolicy.AnnotationPodSecurity: hostpolicy.PodSecurity(space.Settings.PodSecurity),
	} {
		if said := strings.Join(list, ","); said != "" {
			ns.Annotations[key] = said
		}
	}
	ns.Labels[podsecurity.EnforceLevelLabel] = string(cmp.Or(space.Settings.PodSecurity.Level, translate.PodSecurityLevel))
	ns.Labels[podsecurity.EnforceVersionLabel] = podsecurity.VersionLatest
	return ns
}

// limits give containers that ask for nothing a share, as the quota counts
// only what is asked for.
func limits(space translate.Space, items []corev1.LimitRangeItem) *corev1.LimitRange {
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
	return &corev1.LimitRange{
		TypeMeta: kind("v1", "LimitRange"), ObjectMeta: meta(space, objectName),
		Spec: corev1.LimitRangeSpec{Limits: items},
	}
}

// networkPolicies let a space's pods talk to each other, to their DNS and to the
// outside, but not to other spaces, the host's own networks' private ranges
// or the cloud's metadata service. What comes in from public addresses is
// allowed, what comes from other pods is not, but for those of namespaces that
// the admin labels (translate.LabelReachesPods). Whether load balancers and node
// ports let the client's address through, which would else be a node's and so
// private, depends on the host; so does whether other spaces' pods have private
// addresses at all.
//
// Policies add up. The first closes all pods to everything but DNS. The others
// open, in a direction each, the pods that no policy of the tenant's is about;
// the tenant's own open the rest, and never further (translate.NetworkPolicy).
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

// settings are what options set.
type settings struct {
	clusterRole string
	// impersonator is who may impersonate the space's account, see ImpersonatedBy; nobody if it is nil.
	impersonator *rbacv1.Subject
	// account are the rights in the space's namespace, and classes those on classes, see Syncing.
	account, classes []rbacv1.PolicyRule
	where            translate.Placement
	// ingress are the keys of annotations that go along with ingresses.
	ingress []string
	// limits are those of the LimitRange; nil for the defaults.
	limits []corev1.LimitRangeItem
	// labels and annotations of the namespace, besides Berth's.
	labels, annotations map[string]string
	// dedicated are rights for a process of the space's own; nil to leave them as they are.
	dedicated *dedicatedRights
}

func set(options []Option) (s settings) {
	s.account = AccountRules()
	for _, option := range options {
		option(&s)
	}
	return s
}

// Option changes the objects that isolate a space.
type Option func(*settings)

// BoundTo has the space's account get the rights of a ClusterRole in the space's
// namespace, instead of a Role that is written there: the caller of [Apply] then
// needs the right to bind that one role, and none to write roles. The ClusterRole
// is to have [AccountRules], and [MoreRules]. If the sync options of [Syncing] export classes,
// the account is bound to a second one, of the same name with [ClassesSuffix], which is to have
// [ClassRules]. Nothing changes if clusterRole is empty.
func BoundTo(clusterRole string) Option { return func(s *settings) { s.clusterRole = clusterRole } }

// ImpersonatorSuffix makes of the name of the ClusterRole of [BoundTo] the name of the one that grants to impersonate
// accounts of spaces.
const ImpersonatorSuffix = "-impersonator"

// ImpersonatedBy gives a user of the host, such as the platform's account, the right to impersonate the space's account, by a
// binding in the space's namespace. The user then needs no such right in all namespaces, where it would be one on
// the accounts of other platforms' spaces, too. It takes effect with [BoundTo] only.
func ImpersonatedBy(user string) Option {
	return func(s *settings) {
		s.impersonator = &rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}
		if account, ok := strings.CutPrefix(user, serviceAccountPrefix); ok {
			namespace, name, _ := strings.Cut(account, ":")
			s.impersonator = &rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
		}
	}
}

// serviceAccountPrefix begins the name of the user that a service account is, before NAMESPACE:NAME.
const serviceAccountPrefix = "system:serviceaccount:"

// PlacedBy has the host hold the space's account to a placement of pods.
func PlacedBy(where translate.Placement) Option { return func(s *settings) { s.where = where } }

// ExposedBy has the host let the space's account annotate ingresses by these keys.
func ExposedBy(ingressAnnotations []string) Option {
	return func(s *settings) { s.ingress = ingressAnnotations }
}

// LimitedBy sets the limits of the LimitRange. Nothing changes if there are none.
func LimitedBy(limits []corev1.LimitRangeItem) Option { return func(s *settings) { s.limits = limits } }

// LabelledBy sets labels and annotations of the namespace, besides those that Berth sets, which count more.
func LabelledBy(labels, annotations map[string]string) Option {
	return func(s *settings) { s.labels, s.annotations = labels, annotations }
}

// AccountRules are the rights of a space's account in the space's namespace:
// exactly what syncing, as it is by default, and streams take. Network policies are among them: it can
// open what its own pods reach. What others reach, and may do, it can't.
func AccountRules() []rbacv1.PolicyRule { return accountRules(resources.SyncOptions{}) }

func accountRules(syncOptions resources.SyncOptions) []rbacv1.PolicyRule {
	return append(defaultRules(syncOptions), []rbacv1.PolicyRule{
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices/restricted"}, Verbs: []string{"get", "create", "update", "delete"}},
		// What changes in a pod that runs; of its status the conditions of readiness gates.
		{APIGroups: []string{""}, Resources: []string{"pods/ephemeralcontainers", "pods/resize"}, Verbs: []string{"update"}},
		{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
		// What streams ask for (S5): a WebSocket's request is a GET, which hosts
		// from 1.35 on want the right to create for, too. Proxies are not here:
		// those of a space go through port forwarding.
		{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods/exec", "pods/attach", "pods/portforward"}, Verbs: []string{"get", "create"}},
		{APIGroups: []string{"metrics.k8s.io"}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
	}...)
}

// inside lets a space's pods reach their DNS and their API, which are Berth's. The
// host's own DNS they then need no more: it would list other spaces' services.
//
// A pod is selected, and not its address: whether a block of addresses is about pods is up to the network plugin (Cilium says no),
// and an address is another one after a restart.
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

// account is the service account that the space's syncer writes as, with its
// rights, in the space's namespace only.
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
		// A binding's role can't be changed: the name tells what it leads to.
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
		// The account that the space's pods run as, which upstream's controller
		// would make a moment too late: it has no rights and gets no token.
		&corev1.ServiceAccount{
			TypeMeta: kind("v1", "ServiceAccount"), ObjectMeta: meta(space, "default"), AutomountServiceAccountToken: ptr.To(false),
		},
		&corev1.ServiceAccount{
			TypeMeta: kind("v1", "ServiceAccount"), ObjectMeta: meta(space, name), AutomountServiceAccountToken: ptr.To(false),
		},
	}, rights...)
}
