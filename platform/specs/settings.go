// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podsecurity "k8s.io/pod-security-admission/api"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/syncer/patches"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/workloadidentity"
)

// Settings are the contents of a space's spec, in the types of the packages that use them. The zero value means the
// built-in defaults.
type Settings struct {
	limits     bounds.Limits
	sync       resources.SyncOptions
	patches    *patches.Patches
	placement  translate.Placement
	priorities translate.Priorities
	security   translate.PodSecurity
	domains    []string
	closed     []netip.Prefix // in addition to those of the host itself
	// Quota and LimitRange are those of the host namespace. They are nil if the spec does not set them: then the host's
	// objects have the defaults, or what an admin changed in them.
	Quota corev1.ResourceList
	// Ceiling are the numbers that the spec sets. A space of a tenant has no others of its own.
	Ceiling corev1.ResourceList
	// ScopedQuotas are further quotas there, by name.
	ScopedQuotas map[string]corev1.ResourceQuotaSpec
	bandwidth    translate.PodBandwidth
	identities   workloadidentity.Rules
	LimitRange   []corev1.LimitRangeItem
	Namespace    v1alpha1.HostNamespace
	idle         shard.Idle // After is -1 if the spec does not set it
	Store        v1alpha1.Store
	Snapshots    Snapshots
	enforced     enforced
}

// settingsOf returns the settings of a spec, and an error for each invalid value.
func settingsOf(spec *v1alpha1.SpaceSpec, path *field.Path) (settings Settings, errs field.ErrorList) {
	settings = Settings{domains: spec.Network.AllowedDomains, LimitRange: spec.LimitRange, Namespace: spec.HostNamespace, Store: spec.Store, Snapshots: snapshotsOf(&spec.Snapshots), enforced: enforcedOf(spec)}
	if settings.Ceiling = spec.Quota; len(spec.Quota) > 0 {
		settings.Quota = joinMaps(spec.Quota, v1alpha1.DefaultQuota())
	}
	settings.idle = idleOf(&spec.Sleep)
	quotaErrs := checkQuota(spec.Quota, path.Child("quota"))
	scoped, more := scopedQuotasOf(spec.ScopedQuotas, path.Child("scopedQuotas"))
	settings.ScopedQuotas, quotaErrs = scoped, append(quotaErrs, more...)
	bandwidth, more := bandwidthOf(&spec.Network.PodBandwidth, path.Child("network", "podBandwidth"))
	settings.bandwidth, quotaErrs = bandwidth, append(quotaErrs, more...)
	settings.limits, errs = limitsOf(spec.Limits, path.Child("limits"), "space")
	ofTenant, more := limitsOf(spec.TenantLimits, path.Child("tenantLimits"), "tenant")
	settings.enforced.limits, errs = ofTenant, append(errs, more...)
	if seconds := spec.DedicateAfterSeconds; seconds != nil && *seconds < 0 { // in spaceDefaults; the schema of Space rejects it
		errs = append(errs, field.Invalid(path.Child("dedicateAfterSeconds"), *seconds, "must be 0 or more"))
	}
	placement, more := placementOf(&spec.Nodes, path.Child("nodes"))
	settings.placement, errs = placement, append(errs, more...)
	priorities, more := prioritiesOf(&spec.Priority, path.Child("priority"))
	settings.priorities, errs = priorities, append(errs, more...)
	security, more := podSecurityOf(&spec.PodSecurity, path.Child("podSecurity"))
	settings.security, errs = security, append(errs, more...)
	for i, domain := range spec.Network.AllowedDomains {
		for _, problem := range validation.IsDNS1123Subdomain(domain) {
			errs = append(errs, field.Invalid(path.Child("network", "allowedDomains").Index(i), domain, problem))
		}
	}
	settings.identities = identitiesOf(spec.WorkloadIdentity)
	errs = append(errs, settings.identities.Validate(path.Child("workloadIdentity"))...)
	closed, more := rangesOf(spec.Network.ClosedRanges, path.Child("network", "closedRanges"))
	settings.closed, errs = closed, append(errs, more...)
	errs = append(append(errs, quotaErrs...), checkMetadata(spec.HostNamespace.Labels, spec.HostNamespace.Annotations, path.Child("hostNamespace"))...)
	return settings, append(errs, checkEnforced(spec, path)...)
}

// idleOf returns when a space is idle. If the spec names no user agents, those of common clients that watch all
// clusters are ignored.
func idleOf(sleep *v1alpha1.Sleep) shard.Idle {
	idle := shard.Idle{After: -1, Ignored: shard.Clients{
		UserAgents: either(sleep.IgnoredClients.UserAgents, v1alpha1.DefaultIgnoredUserAgents()), Users: sleep.IgnoredClients.Users, Groups: sleep.IgnoredClients.Groups,
	}}
	if sleep.IdleAfterSeconds != nil {
		idle.After = time.Duration(*sleep.IdleAfterSeconds) * time.Second
	}
	return idle
}

// Limits are those of the space.
func (s *Settings) Limits() bounds.Limits { return s.limits }

// defaultLimits returns what the host sets for a container without limits; nil for the built-in defaults.
func (s *Settings) defaultLimits() corev1.ResourceList {
	for _, item := range s.LimitRange {
		if item.Type == corev1.LimitTypeContainer {
			if item.Default == nil {
				return corev1.ResourceList{}
			}
			return item.Default
		}
	}
	if len(s.LimitRange) > 0 {
		return corev1.ResourceList{}
	}
	return nil
}

// limitsOf returns the limits of a space, or of a tenant.
func limitsOf(limits map[string]resource.Quantity, path *field.Path, of string) (out bounds.Limits, errs field.ErrorList) {
	out = bounds.Limits{}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		limit, value := path.Key(name), limits[name]
		quantity, ok := bounds.ByName(name)
		if !ok || quantity.Bound().Scope != bounds.PerSpace || of == "tenant" && !slices.Contains(bounds.OfTenants(), quantity) {
			errs = append(errs, field.Invalid(limit, name, fmt.Sprintf("not a limit of a %s; docs/reference/limits.md lists the limits", of)))
			continue
		}
		n, whole := value.AsInt64()
		if !whole || n < 1 || n == math.MaxInt64 {
			errs = append(errs, field.Invalid(limit, value.String(), fmt.Sprintf("must be a whole number of %s, 1 or more", quantity.Bound().Unit)))
			continue
		}
		out[quantity] = n
	}
	return out, errs
}

func podSecurityOf(spec *v1alpha1.PodSecurity, path *field.Path) (out translate.PodSecurity, errs field.ErrorList) {
	// oneOf accepts the empty value and the listed ones.
	oneOf := func(name string, value string, values ...string) {
		if value != "" && !slices.Contains(values, value) {
			errs = append(errs, field.NotSupported(path.Child(name), value, values))
		}
	}
	oneOf("level", spec.Level, string(podsecurity.LevelBaseline), string(podsecurity.LevelRestricted))
	oneOf("defaultSeccomp", string(spec.DefaultSeccomp), string(corev1.SeccompProfileTypeRuntimeDefault), string(corev1.SeccompProfileTypeUnconfined))
	oneOf("netRaw", string(spec.NetRaw), string(v1alpha1.Allowed), string(v1alpha1.Denied))
	oneOf("userNamespaces", spec.UserNamespaces, "Optional", "Required")
	oneOf("hostProfiles", string(spec.HostProfiles), string(v1alpha1.Allowed), string(v1alpha1.Denied))
	if spec.RuntimeClassName != "" {
		for _, problem := range validation.IsDNS1123Subdomain(spec.RuntimeClassName) {
			errs = append(errs, field.Invalid(path.Child("runtimeClassName"), spec.RuntimeClassName, problem))
		}
	}
	return translate.PodSecurity{
		Level: podsecurity.Level(spec.Level), Seccomp: spec.DefaultSeccomp, RuntimeClass: spec.RuntimeClassName,
		UserNamespaces: spec.UserNamespaces == "Required", DropNetRaw: spec.NetRaw == v1alpha1.Denied, HostProfiles: spec.HostProfiles == v1alpha1.Allowed,
	}, errs
}

func rangesOf(ranges []string, path *field.Path) (out []netip.Prefix, errs field.ErrorList) {
	for i, text := range ranges {
		prefix, err := netip.ParsePrefix(text)
		var problem string
		switch {
		case err != nil || prefix.Addr().Is4In6():
			problem = "must be an address range such as 203.0.113.0/24 or 2001:db8::/32"
		case prefix != prefix.Masked():
			problem = fmt.Sprintf("has bits after the prefix length; use %s", prefix.Masked())
		case prefix.Bits() == 0:
			problem = "must not contain all addresses; use a longer prefix"
		default:
			out = append(out, prefix)
			continue
		}
		errs = append(errs, field.Invalid(path.Index(i), text, problem))
	}
	return out, errs
}

// checkMetadata rejects labels and annotations by which controllers of Kubernetes or of Berth recognize namespaces.
func checkMetadata(labels, annotations map[string]string, path *field.Path) (errs field.ErrorList) {
	errs = metav1validation.ValidateLabels(labels, path.Child("labels"))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if isOf(key, translate.Domain, "kubernetes.io", "k8s.io") {
			errs = append(errs, field.Invalid(path.Child("labels").Key(key), key, "labels of berth.dev, kubernetes.io, and k8s.io are set by Berth and by Kubernetes"))
		}
	}
	errs = append(errs, checkAnnotationKeys(annotations, path.Child("annotations"))...)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if isOf(key, translate.Domain, "kubernetes.io", "k8s.io", "x-k8s.io") {
			errs = append(errs, field.Invalid(path.Child("annotations").Key(key), key, "annotations of berth.dev, kubernetes.io, k8s.io, and x-k8s.io are set by Berth and by Kubernetes"))
		}
	}
	return errs
}

func checkAnnotationKeys(annotations map[string]string, path *field.Path) (errs field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		for _, problem := range validation.IsQualifiedName(strings.ToLower(key)) {
			errs = append(errs, field.Invalid(path.Key(key), key, problem))
		}
	}
	return errs
}

// isOf reports whether the prefix of a key is one of the domains or a subdomain.
func isOf(key string, domains ...string) bool {
	prefix, _, found := strings.Cut(key, "/")
	return found && slices.ContainsFunc(domains, func(domain string) bool { return prefix == domain || strings.HasSuffix(prefix, "."+domain) })
}
