// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// DedicatedSuffix and DedicatedReaderSuffix are appended to the name of the ClusterRole of [BoundTo] for those with
// [WatchRules] and with [ReadRules].
const (
	DedicatedSuffix       = "-dedicated"
	DedicatedReaderSuffix = "-dedicated-reader"
)

// dedicatedName is the name of the Role with [WatchRules], and of its binding, without [BoundTo].
const dedicatedName = "berth-dedicated"

// dedicatedRights are the rights of the account of a space with its own process.
type dedicatedRights struct {
	granted        bool
	watch, cluster []rbacv1.PolicyRule
}

// Dedicated gives the space's account [WatchRules] and [ReadRules], and those for what is synced by ResourceSyncs, for a process that serves
// only this space, and accesses the host only with this account. The account of a shared space needs neither, because the platform watches
// for it.
func Dedicated(syncOptions resources.SyncOptions, synced ...*declaration.Declaration) Option {
	rights := &dedicatedRights{true, WatchRules(syncOptions), ReadRules(syncOptions)}
	for _, d := range synced {
		if d.FromHost {
			rights.cluster = append(rights.cluster, DedicatedSyncRule(d))
		} else {
			rights.watch = append(rights.watch, DedicatedSyncRule(d))
		}
	}
	return func(s *settings) { s.dedicated = rights }
}

// DedicatedSyncRule returns the right of the account of a space with a process of its own to watch the resource of a declaration: in the
// space's namespace, or in the cluster if its direction is FromHost.
func DedicatedSyncRule(d *declaration.Declaration) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{d.GVR.Group}, Resources: []string{d.GVR.Resource}, Verbs: []string{"list", "watch"}}
}

// Undedicated removes what [Dedicated] has granted.
func Undedicated(syncOptions resources.SyncOptions) Option {
	return func(s *settings) {
		s.dedicated = &dedicatedRights{false, WatchRules(syncOptions), ReadRules(syncOptions)}
	}
}

// WatchRules returns the rights to watch the space's host namespace, beyond [AccountRules] and [MoreRules].
func WatchRules(syncOptions resources.SyncOptions) []rbacv1.PolicyRule {
	watch := []string{"list", "watch"}
	var rules []rbacv1.PolicyRule
	verbs := func(r resources.Resource) []string {
		switch {
		case syncOptions.Watched(r):
			return watch
		case r.Lasts || r.Direction == resources.FromHost:
			return nil
		default:
			return []string{"list"} // what was synced before is deleted
		}
	}
	for _, r := range resources.Table() {
		if r.Type == nil || r.InCluster || r.Optional() || verbs(r) == nil {
			continue
		}
		rule := writeRule(r)
		rule.Verbs = verbs(r)
		rules = merged(rules, rule)
	}
	rules = merged(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"resourcequotas"}, Verbs: watch})
	rules = slices.Insert(rules, 1, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}})
	for _, r := range optional() {
		if rule := writeRule(r); verbs(r) != nil {
			rule.Verbs = verbs(r)
			rules = append(rules, rule)
		}
	}
	return rules
}

// ReadRules returns the rights to read cluster-scoped resources, and the objects in all namespaces that claim host
// names, because two spaces must not have the same one.
func ReadRules(syncOptions resources.SyncOptions) []rbacv1.PolicyRule {
	watch := []string{"list", "watch"}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}, ResourceNames: []string{"kubernetes"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get"}},
	}
	if syncOptions.On(resources.Volumes) || syncOptions.On(resources.ExportedVolumes) {
		rules[1].Verbs = append(rules[1].Verbs, watch...)
	}
	for _, r := range resources.Table() {
		isClass := r.InCluster && !r.Extension && (r.Class || r.Direction == resources.ToHost) // the host's, or tenants' own
		if syncOptions.Watched(r) && (isClass || r.Name == resources.Ingresses) && !grants(rules, r) {
			rule := writeRule(r)
			rule.Verbs = watch
			rules = merged(rules, rule)
		}
	}
	if syncOptions.Value(resources.Nodes) == resources.All {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: watch})
	}
	groups := map[string]string{
		resources.VolumeSnapshots: "snapshot.storage.k8s.io", resources.SnapshotClasses: "snapshot.storage.k8s.io",
		resources.Gateways: "gateway.networking.k8s.io", resources.HTTPRoutes: "gateway.networking.k8s.io", resources.GatewayClasses: "gateway.networking.k8s.io",
	}
	for _, resource := range slices.Sorted(maps.Keys(groups)) {
		if !syncOptions.On(resource) {
			continue
		}
		if resource != resources.VolumeSnapshots { // they are watched only in the space's namespace
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{groups[resource]}, Resources: []string{resource}, Verbs: watch})
		}
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
			ResourceNames: []string{resource + "." + groups[resource]}, Verbs: []string{"get"},
		})
	}
	return rules
}

// grants reports whether one of the rules is about a resource.
func grants(rules []rbacv1.PolicyRule, r resources.Resource) bool {
	of := r.GVR()
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.APIGroups, of.Group) && slices.Contains(rule.Resources, of.Resource)
	})
}

// dedicatedObjects returns the objects that grant the rights of a space's own process, or remove them: a binding
// without subjects grants nothing, and writing it does not need the right to delete bindings.
func dedicatedObjects(space translate.Space, namespace metav1.Object, o settings) []client.Object {
	if o.dedicated == nil {
		return nil
	}
	var subjects []rbacv1.Subject
	if o.dedicated.granted {
		subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: syncer.ServiceAccount, Namespace: space.HostNamespace()}}
	}
	at := clusterMeta(space, namespace)
	at.Name = space.HostNamespace() + ":dedicated" // the name of a space contains no colon
	inNamespace := &rbacv1.RoleBinding{
		TypeMeta: kind("rbac.authorization.k8s.io/v1", "RoleBinding"), ObjectMeta: meta(space, dedicatedName), Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: dedicatedName},
	}
	inCluster := &rbacv1.ClusterRoleBinding{
		TypeMeta: kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"), ObjectMeta: at, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: at.Name},
	}
	if o.clusterRole != "" {
		inNamespace.Name = o.clusterRole + DedicatedSuffix // a binding's role is immutable, so its name contains the name of the role
		inNamespace.RoleRef.Kind, inNamespace.RoleRef.Name = "ClusterRole", inNamespace.Name
		inCluster.RoleRef.Name = o.clusterRole + DedicatedReaderSuffix
		return []client.Object{inNamespace, inCluster}
	}
	return []client.Object{
		&rbacv1.Role{TypeMeta: kind("rbac.authorization.k8s.io/v1", "Role"), ObjectMeta: meta(space, dedicatedName), Rules: o.dedicated.watch}, inNamespace,
		&rbacv1.ClusterRole{TypeMeta: kind("rbac.authorization.k8s.io/v1", "ClusterRole"), ObjectMeta: at, Rules: o.dedicated.cluster}, inCluster,
	}
}
