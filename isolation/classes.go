// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// Syncing gives the space's account the rights that these sync options need, instead of [AccountRules]: fewer where
// resources are disabled, more where others are enabled ([MoreRules]), and the rights on classes and volumes, which are
// cluster-scoped. With [BoundTo], these rights are those of existing ClusterRoles, which [ClassPolicy] restricts.
func Syncing(syncOptions resources.SyncOptions) Option {
	return func(s *settings) {
		s.account, s.classes = append(accountRules(syncOptions), MoreRules(syncOptions)...), ClassRules(syncOptions)
	}
}

// MoreRules returns the rights of a space's account, in the space's namespace, on resources that are off by default.
// They include deleting stale objects of resources that are disabled.
func MoreRules(syncOptions resources.SyncOptions) (rules []rbacv1.PolicyRule) {
	for _, r := range optional() {
		rule := writeRule(r)
		if !syncOptions.On(r.Name) {
			if r.Lasts {
				continue
			}
			rule.Verbs = []string{"delete"}
		}
		rules = append(rules, rule)
	}
	return rules
}

// defaultRules returns the rights to write what is synced by default, by API group. Objects of disabled resources may
// still be deleted. Rights on resources that others need stay.
func defaultRules(syncOptions resources.SyncOptions) (rules []rbacv1.PolicyRule) {
	for _, r := range resources.Table() {
		if r.Direction != resources.ToHost || r.InCluster || r.Optional() {
			continue
		}
		rule := writeRule(r)
		if !syncOptions.On(r.Name) && !r.Read {
			rule.Verbs = []string{"delete"}
		}
		rules = merged(rules, rule)
	}
	return rules
}

// merged returns rules with one more. Resources of a group that have the same verbs share a rule.
func merged(rules []rbacv1.PolicyRule, rule rbacv1.PolicyRule) []rbacv1.PolicyRule {
	i := slices.IndexFunc(rules, func(have rbacv1.PolicyRule) bool {
		return have.APIGroups[0] == rule.APIGroups[0] && slices.Equal(have.Verbs, rule.Verbs)
	})
	if i < 0 {
		return append(rules, rule)
	}
	rules[i].Resources = append(rules[i].Resources, rule.Resources...)
	return rules
}

// optional returns the resources of [MoreRules].
func optional() []resources.Resource {
	all := slices.DeleteFunc(resources.Table(), func(r resources.Resource) bool {
		return r.Direction != resources.ToHost || r.InCluster || !r.Optional()
	})
	slices.SortFunc(all, func(a, b resources.Resource) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// writeRule returns the right to write a resource.
func writeRule(r resources.Resource) rbacv1.PolicyRule {
	of := r.GVR()
	return rbacv1.PolicyRule{APIGroups: []string{of.Group}, Resources: []string{of.Resource}, Verbs: []string{"get", "create", "update", "delete"}}
}

// ClassRules returns the rights on the host's classes and volumes that a space's account needs to export those of its
// tenant, if these are exported.
func ClassRules(syncOptions resources.SyncOptions) (rules []rbacv1.PolicyRule) {
	for _, class := range classes(syncOptions) {
		if class.allowed == never {
			continue
		}
		rules = append(rules, writeRule(class.Resource))
	}
	return rules
}

// ClassPolicy returns the policy that restricts these rights: to a space's own objects, and to what the admin allows.
// It also covers resources that are disabled, because a sleeping space keeps its rights when an option is turned off.
func ClassPolicy(syncOptions resources.SyncOptions) admissionv1.ValidatingAdmissionPolicySpec {
	policy := admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: ptr.To(admissionv1.Fail), MatchConstraints: &admissionv1.MatchResources{}, MatchConditions: hostpolicy.FromAccounts(),
		Validations: hostpolicy.Classes(),
	}
	for _, class := range classes(syncOptions) {
		policy.MatchConstraints.ResourceRules = append(policy.MatchConstraints.ResourceRules, admissionv1.NamedRuleWithOperations{
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
				Rule: admissionv1.Rule{
					APIGroups: []string{class.GVR().Group}, APIVersions: []string{class.GVR().Version}, Resources: []string{class.GVR().Resource}, Scope: ptr.To(admissionv1.ClusterScope),
				},
			},
		})
		policy.Validations = append(policy.Validations, hostpolicy.Refuse(class.message,
			fmt.Sprintf("request.resource.resource != '%s' || object == null || %s", class.GVR().Resource, class.allowed)))
	}
	policy.Validations = append(policy.Validations, hostpolicy.ClassFields()...)
	return policy
}

// class is a cluster-scoped resource of which tenants' objects are exported.
type class struct {
	resources.Resource
	allowed, message string
}

// never is the expression for a disabled resource.
const never = "false"

func classes(syncOptions resources.SyncOptions) []class {
	priorities := class{resources.Of(resources.ExportedPriorityClasses), never, "a space's priority classes may not exceed the value and the preemptionPolicy that the admin allows, and may not be the globalDefault"}
	if highest, preempt, ok := syncOptions.PriorityBound(); ok {
		priorities.allowed = fmt.Sprintf("object.value <= %d && !object.?globalDefault.orValue(false)", highest)
		if !preempt {
			priorities.allowed += " && object.?preemptionPolicy.orValue('') == 'Never'"
		}
	}
	storage := class{resources.Of(resources.ExportedStorageClasses), never,
		"a space's storage classes may have only a provisioner that the admin allows, no secret in parameters, no mountOptions, no allowedTopologies, and Delete as reclaimPolicy, and may not be the default"}
	if provisioners := syncOptions.Provisioners(); len(provisioners) > 0 {
		storage.allowed = "object.provisioner in " + "['" + strings.Join(provisioners, "', '") + "']" +
			" && object.?parameters.orValue({}).all(k, !k.lowerAscii().contains('secret'))" +
			" && size(object.?mountOptions.orValue([])) == 0 && size(object.?allowedTopologies.orValue([])) == 0 && object.?reclaimPolicy.orValue('Delete') == 'Delete'" +
			" && !('storageclass.kubernetes.io/is-default-class' in object.metadata.?annotations.orValue({}))"
	}
	volumes := class{resources.Of(resources.ExportedVolumes), never, hostpolicy.VolumesMessage}
	if rules := syncOptions.VolumeRules(); len(rules) > 0 {
		volumes.allowed = hostpolicy.Volume(rules)
	}
	return []class{priorities, storage, volumes}
}

// ClassesSuffix is appended to the name of the ClusterRole of [BoundTo] for the one with [ClassRules].
const ClassesSuffix = "-classes"

// clusterMeta returns the metadata of a cluster-scoped object of the space. The host's garbage collector deletes it
// with the space's namespace.
//
// The policy for the platform's account (charts/berth) requires these names and labels, so that the account can't write
// objects of other platforms or of anybody else.
func clusterMeta(space translate.Space, namespace metav1.Object) metav1.ObjectMeta {
	at := meta(space, space.HostNamespace())
	at.Namespace = ""
	if space.Platform != "" {
		at.Labels[translate.LabelPlatform] = space.Platform
	}
	at.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: namespace.GetName(), UID: namespace.GetUID()}}
	return at
}

// classRights returns the objects that give a space's account its rights on classes. They are cluster-scoped. With
// [BoundTo], the role exists already, and only the binding is written.
func classRights(space translate.Space, namespace metav1.Object, o settings) []client.Object {
	if len(o.classes) == 0 {
		return nil
	}
	at := clusterMeta(space, namespace)
	binding := &rbacv1.ClusterRoleBinding{
		TypeMeta: kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"), ObjectMeta: at,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: at.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: syncer.ServiceAccount, Namespace: space.HostNamespace()}},
	}
	if o.clusterRole != "" {
		binding.RoleRef.Name = o.clusterRole + ClassesSuffix
		return []client.Object{binding}
	}
	return []client.Object{
		&rbacv1.ClusterRole{TypeMeta: kind("rbac.authorization.k8s.io/v1", "ClusterRole"), ObjectMeta: at, Rules: o.classes},
		binding,
	}
}
