// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// Isolation describes how one space is isolated on the host.
type Isolation struct {
	Space translate.Space
	// Quota is nil for the default quota, whose numbers an admin may change.
	Quota   corev1.ResourceList
	Options []Option
}

// Apply is [Apply] for this space.
func (i *Isolation) Apply(ctx context.Context, host client.Client) error {
	return Apply(ctx, host, i.Space, i.Quota, i.Options...)
}

// objects returns all objects that [Apply] writes.
func (i *Isolation) objects() []client.Object {
	o, ns := set(i.Options), &corev1.Namespace{}
	return slices.Concat(Objects(i.Space, i.Quota, i.Options...), classRights(i.Space, ns, o), dedicatedObjects(i.Space, ns, o))
}

// difference returns the first field in which an object on the host differs from the wanted one, for messages; "" if
// there is none. What [Apply] leaves to admins is ignored: numbers of a default quota, and labels and annotations that
// are not Berth's.
func difference(want, live client.Object, defaultQuota bool) string {
	for key, value := range want.GetLabels() {
		if have, ok := live.GetLabels()[key]; !ok || have != value {
			return fmt.Sprintf("metadata.labels[%s]", key)
		}
	}
	for key, value := range want.GetAnnotations() {
		if have, ok := live.GetAnnotations()[key]; !ok || have != value {
			return fmt.Sprintf("metadata.annotations[%s]", key)
		}
	}
	same := equality.Semantic.DeepEqual
	switch want := want.(type) {
	case *corev1.ResourceQuota:
		live, _ := live.(*corev1.ResourceQuota)
		for _, name := range slices.Sorted(maps.Keys(want.Spec.Hard)) {
			hard, limited := live.Spec.Hard[name]
			if mayDiffer := defaultQuota && want.Name == objectName; !limited || !mayDiffer && hard.Cmp(want.Spec.Hard[name]) != 0 {
				return fmt.Sprintf("spec.hard[%s]", name)
			}
		}
		switch {
		case !sameScopes(&want.Spec, &live.Spec):
			return "spec.scopes"
		case !same(want.Spec.ScopeSelector, live.Spec.ScopeSelector):
			return "spec.scopeSelector"
		}
	case *corev1.LimitRange: // the host sets defaults in it
		live, _ := live.(*corev1.LimitRange)
		if len(want.Spec.Limits) != len(live.Spec.Limits) || !equality.Semantic.DeepDerivative(want.Spec.Limits, live.Spec.Limits) {
			return "spec.limits"
		}
	case *networkingv1.NetworkPolicy:
		live, _ := live.(*networkingv1.NetworkPolicy)
		switch {
		case !same(want.Spec.PodSelector, live.Spec.PodSelector):
			return "spec.podSelector"
		case !same(want.Spec.PolicyTypes, live.Spec.PolicyTypes):
			return "spec.policyTypes"
		case !same(want.Spec.Ingress, live.Spec.Ingress):
			return "spec.ingress"
		case !same(want.Spec.Egress, live.Spec.Egress):
			return "spec.egress"
		}
	case *corev1.ServiceAccount:
		live, _ := live.(*corev1.ServiceAccount)
		if !same(want.AutomountServiceAccountToken, live.AutomountServiceAccountToken) {
			return "automountServiceAccountToken"
		}
	case *rbacv1.Role:
		live, _ := live.(*rbacv1.Role)
		if !same(want.Rules, live.Rules) {
			return "rules"
		}
	case *rbacv1.ClusterRole:
		live, _ := live.(*rbacv1.ClusterRole)
		if !same(want.Rules, live.Rules) {
			return "rules"
		}
	case *rbacv1.RoleBinding:
		live, _ := live.(*rbacv1.RoleBinding)
		return differentBinding(want.RoleRef, live.RoleRef, want.Subjects, live.Subjects)
	case *rbacv1.ClusterRoleBinding:
		live, _ := live.(*rbacv1.ClusterRoleBinding)
		return differentBinding(want.RoleRef, live.RoleRef, want.Subjects, live.Subjects)
	case *admissionv1.ValidatingAdmissionPolicy:
		live, _ := live.(*admissionv1.ValidatingAdmissionPolicy)
		if !same(want.Spec, withoutDefaults(live.Spec)) {
			return "spec"
		}
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		live, _ := live.(*admissionv1.ValidatingAdmissionPolicyBinding)
		if !same(want.Spec, live.Spec) {
			return "spec"
		}
	}
	return ""
}

// withoutDefaults returns the spec of a policy without the defaults that the host sets in one of [Policies].
func withoutDefaults(spec admissionv1.ValidatingAdmissionPolicySpec) admissionv1.ValidatingAdmissionPolicySpec {
	spec = *spec.DeepCopy()
	matched := spec.MatchConstraints
	if matched == nil {
		return spec
	}
	if ptr.Deref(matched.MatchPolicy, "") == admissionv1.Equivalent {
		matched.MatchPolicy = nil
	}
	for _, selector := range []**metav1.LabelSelector{&matched.NamespaceSelector, &matched.ObjectSelector} {
		if equality.Semantic.DeepEqual(*selector, &metav1.LabelSelector{}) {
			*selector = nil
		}
	}
	return spec
}

func differentBinding(want, live rbacv1.RoleRef, wanted, subjects []rbacv1.Subject) string {
	switch {
	case want != live:
		return "roleRef"
	case !slices.Equal(wanted, subjects):
		return "subjects"
	default:
		return ""
	}
}
