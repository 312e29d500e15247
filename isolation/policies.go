// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// Names of the policies, and of their bindings, that [InstallPolicies] writes.
const (
	accountPolicyName = "berth-space-accounts"
	podPolicyName     = "berth-space-pods"
	classPolicyName   = "berth-space-classes"
	runtimePolicyName = "berth-space-runtimes"
)

// InstallPolicies writes the admission policies by which the host limits all
// spaces' accounts: [PodPolicy], [AccountPolicy] and [RuntimePolicy], and the
// [ClassPolicy] of these sync options. It is repeatable; a host enforces the policies
// some moments later, see [WaitEnforced].
func InstallPolicies(ctx context.Context, host client.Client, syncOptions resources.SyncOptions) error {
	// The pods' comes first: what an older Berth made is about pods, too, until
	// the other one takes its place.
	if err := installPolicy(ctx, host, podPolicyName, PodPolicy()); err != nil {
		return err
	}
	if err := installPolicy(ctx, host, accountPolicyName, AccountPolicy()); err != nil {
		return err
	}
	if err := installPolicy(ctx, host, runtimePolicyName, RuntimePolicy()); err != nil {
		return err
	}
	return installPolicy(ctx, host, classPolicyName, ClassPolicy(syncOptions))
}

func installPolicy(ctx context.Context, host client.Client, name string, policy admissionv1.ValidatingAdmissionPolicySpec) error {
	var params *admissionv1.ParamRef
	if policy.ParamKind != nil {
		params = AllParams()
	}
	at := metav1.ObjectMeta{Name: name, Labels: map[string]string{translate.LabelManagedBy: translate.ManagedBy}}
	for _, o := range []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{
			TypeMeta: kind("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"), ObjectMeta: at, Spec: policy,
		},
		&admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta: kind("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"), ObjectMeta: at,
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ParamRef: params, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
		},
	} {
		//nolint:staticcheck // client.Apply wants generated apply configurations, which say the same at greater length
		if err := host.Patch(ctx, o, client.Apply, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
			return fmt.Errorf("install the policies for spaces' accounts on the host: %w", err)
		}
	}
	return nil
}

// AccountPolicy is what the host holds the spaces' accounts to beyond [AccountRules],
// see package hostpolicy. Pods are [PodPolicy]'s.
func AccountPolicy() admissionv1.ValidatingAdmissionPolicySpec {
	return accountPolicy(func(resource string) bool { return !ofPods(resource) }, hostpolicy.Accounts())
}

// PodPolicy is what [AccountPolicy] is for all else.
func PodPolicy() admissionv1.ValidatingAdmissionPolicySpec {
	return accountPolicy(ofPods, hostpolicy.Pods())
}

// RuntimePolicy is about pods that name a runtime class. A binding of it has
// [AllParams].
func RuntimePolicy() admissionv1.ValidatingAdmissionPolicySpec {
	policy := accountPolicy(func(resource string) bool { return resource == "pods" }, hostpolicy.Runtimes())
	policy.ParamKind = &admissionv1.ParamKind{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"}
	policy.MatchConditions = append(policy.MatchConditions, hostpolicy.NamesRuntime())
	return policy
}

// AllParams has a policy be evaluated for all runtime classes. A host without any
// refuses a pod that names one before it asks policies.
func AllParams() *admissionv1.ParamRef {
	return &admissionv1.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: ptr.To(admissionv1.AllowAction)}
}

// ofPods reports whether a resource is pods, or under them.
func ofPods(resource string) bool { return resource == "pods" || strings.HasPrefix(resource, "pods/") }

// accountPolicy is a policy about what the accounts write of some resources. It
// is asked about namespaces of spaces only, so that a mistake in it could stop no
// other work of the host. Whatever it can't evaluate it refuses.
//
// A host takes the better part of a millisecond for each policy that an object
// meets, most of it to convert the object: each resource meets exactly one.
func accountPolicy(resources func(name string) bool, policy hostpolicy.Policy) admissionv1.ValidatingAdmissionPolicySpec {
	return admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: ptr.To(admissionv1.Fail),
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: translate.LabelSpace, Operator: metav1.LabelSelectorOpExists}}},
			ResourceRules:     written(resources),
		},
		MatchConditions: hostpolicy.FromAccounts(),
		Variables:       policy.Variables,
		Validations:     policy.Validations,
	}
}

// written are those of the resources that the accounts have a right to write.
func written(resources func(name string) bool) (rules []admissionv1.NamedRuleWithOperations) {
	rights := AccountRules()
	for _, r := range optional() { // whether or not they are enabled: the policy is the same for all
		rights = append(rights, writeRule(r))
	}
	for _, r := range rights {
		names := slices.DeleteFunc(slices.Clone(r.Resources), func(name string) bool { return !resources(name) })
		writes := slices.ContainsFunc(r.Verbs, func(v string) bool { return v == "update" || v == "patch" || v == "delete" })
		if !writes || len(names) == 0 {
			continue
		}
		rules = append(rules, admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
			Rule: admissionv1.Rule{
				APIGroups: r.APIGroups, APIVersions: []string{"v1"}, Resources: names, Scope: ptr.To(admissionv1.NamespacedScope),
			},
		}})
	}
	return rules
}
