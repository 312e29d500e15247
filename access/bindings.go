// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
)

const (
	// LabelTenant on an object in a space names the tenant, and says that Berth keeps the object.
	LabelTenant = "berth.dev/tenant"
	// LabelRoleBinding on a RoleBinding tells those of Berth from others.
	LabelRoleBinding = "berth.dev/role-binding"

	maxName = 253
	// hashLength is the number of hexadecimal digits of hashes in names and labels.
	hashLength = 16
	// maxPromoted is the number of ServiceAccounts that the role bindings show as promoted.
	maxPromoted = 256
)

// ownerBinding is the role binding of one role of an owner.
type ownerBinding struct {
	owner   *v1alpha1.Owner
	binding *rbacv1.RoleBinding
}

// bind makes the role bindings of the state. Their namespace is empty.
func (r *Rules) bind() {
	tenant, used, index := r.state.TenantName(), map[string]bool{}, 0
	name := func(base string) string { return uniqueName("berth-"+tenant+"-"+base, used) }
	for i := range r.state.Access.Owners {
		owner := &r.state.Access.Owners[i]
		for _, role := range clusterRoles(owner) {
			b := r.binding(name(strconv.Itoa(index)+"-"+role), role, []rbacv1.Subject{subjectFor(owner.Kind, owner.Name)}, owner.Labels, owner.Annotations)
			r.owners = append(r.owners, ownerBinding{owner, b})
			index++
		}
	}
	for _, a := range r.state.Access.AdditionalRoleBindings {
		r.others = append(r.others, r.binding(name(a.ClusterRoleName), a.ClusterRoleName, a.Subjects, a.Labels, a.Annotations))
	}
	if r.Promotes() {
		for _, role := range DefaultRoles() {
			r.promoted = append(r.promoted, r.binding(name("promoted-"+role), role, nil, nil, nil))
		}
	}
}

func (r *Rules) binding(name, role string, subjects []rbacv1.Subject, labels, annotations map[string]string) *rbacv1.RoleBinding {
	said := []string{role}
	for _, s := range subjects {
		said = append(said, s.Kind, s.Namespace, s.Name)
	}
	all := maps.Clone(labels)
	if all == nil {
		all = map[string]string{}
	}
	all[LabelTenant], all[LabelRoleBinding] = r.state.TenantName(), hash(said...)
	subjects = slices.Clone(subjects)
	for i := range subjects { // as the API server has it
		if subjects[i].APIGroup == "" && subjects[i].Kind != rbacv1.ServiceAccountKind {
			subjects[i].APIGroup = rbacv1.GroupName
		}
	}
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all, Annotations: annotations},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	}
}

func subjectFor(kind v1alpha1.SubjectKind, name string) rbacv1.Subject {
	if namespace, account, ok := serviceAccount(name); ok && kind == v1alpha1.ServiceAccountKind {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}
	}
	if u := HostUser(name); u != nil && kind == v1alpha1.HostServiceAccountKind {
		name = u.Name
	}
	if kind == v1alpha1.GroupKind {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
	}
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

// RoleBindings returns the role bindings that each namespace of tenants shows, without a namespace. promoted are the names of the
// ServiceAccounts that are promoted, as namespace/name.
func (r *Rules) RoleBindings(promoted []string) []*rbacv1.RoleBinding {
	all := make([]*rbacv1.RoleBinding, 0, len(r.owners)+len(r.others)+len(r.promoted))
	for _, b := range r.owners {
		all = append(all, b.binding)
	}
	all = append(all, r.others...)
	if len(promoted) == 0 {
		return all
	}
	promoted = slices.Sorted(slices.Values(promoted))
	for _, b := range r.promoted {
		binding := *b
		for _, p := range promoted[:min(len(promoted), maxPromoted)] {
			namespace, name, _ := strings.Cut(p, "/")
			binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name})
		}
		all = append(all, &binding)
	}
	return all
}

// NamespaceDeleter returns the ClusterRole that allows to delete the namespace that it is bound in.
func (r *Rules) NamespaceDeleter() *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.NamespaceDeleterRole, Labels: map[string]string{LabelTenant: r.state.TenantName()}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"delete"}}},
	}
}

// uniqueName returns a name that is not used. Names that are too long or used end with a hash.
func uniqueName(name string, used map[string]bool) string {
	unique := name
	for i := 0; len(unique) > maxName || used[unique]; i++ {
		suffix := "-" + hash(name, strconv.Itoa(i))
		unique = name[:min(len(name), maxName-len(suffix))] + suffix
	}
	used[unique] = true
	return unique
}

// hash returns a hash of texts, which is another for other texts.
func hash(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%d:%s", len(t), t)
	}
	return hex.EncodeToString(h.Sum(nil))[:hashLength]
}
