// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// These are the names of the policies that [InstallPolicies] writes, and of their bindings.
const (
	accountPolicyName = "berth-space-accounts"
	podPolicyName     = "berth-space-pods"
	classPolicyName   = "berth-space-classes"
	runtimePolicyName = "berth-space-runtimes"
	sharePolicyName   = "berth-space-shares"
)

// Policies returns the admission policies that restrict all spaces' accounts, and their bindings: [SharePolicy],
// [PodPolicy], [AccountPolicy], [RuntimePolicy], and the [ClassPolicy] of these sync options.
func Policies(syncOptions resources.SyncOptions) (all []client.Object) {
	for _, policy := range []struct {
		name string
		spec admissionv1.ValidatingAdmissionPolicySpec
	}{
		// The policy for pods is before that for accounts: the latter of an older version also covers pods, until the new one replaces it.
		{sharePolicyName, SharePolicy()},
		{podPolicyName, PodPolicy()}, {accountPolicyName, AccountPolicy()}, {runtimePolicyName, RuntimePolicy()}, {classPolicyName, ClassPolicy(syncOptions)},
	} {
		all = append(all, bound(metav1.ObjectMeta{Name: policy.name, Labels: map[string]string{translate.LabelManagedBy: translate.ManagedBy}}, policy.spec)...)
	}
	return all
}

// bound returns a policy and the binding that enforces it, with the same metadata.
func bound(meta metav1.ObjectMeta, policy admissionv1.ValidatingAdmissionPolicySpec) []client.Object {
	binding := admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: meta.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}
	if policy.ParamKind != nil {
		binding.ParamRef = AllParams()
	}
	return []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: policy},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: *meta.DeepCopy(), Spec: binding},
	}
}

// InstallPolicies writes the [Policies]. It may be repeated. A host enforces new policies after some moments; see
// [WaitEnforced].
func InstallPolicies(ctx context.Context, host client.Client, syncOptions resources.SyncOptions) error {
	return install(ctx, host, Policies(syncOptions))
}

// install writes policies and their bindings.
func install(ctx context.Context, host client.Client, policies []client.Object) error {
	for _, want := range policies {
		live, _ := want.DeepCopyObject().(client.Object)
		err := retry.OnError(retry.DefaultBackoff, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }, func() error {
			_, err := controllerutil.CreateOrUpdate(ctx, host, live, func() error {
				// The whole spec is replaced: fields that somebody adds, such as conditions, could make a policy apply
				// less often.
				switch want := want.(type) {
				case *admissionv1.ValidatingAdmissionPolicy:
					policy, _ := live.(*admissionv1.ValidatingAdmissionPolicy)
					policy.Spec = *want.Spec.DeepCopy()
				case *admissionv1.ValidatingAdmissionPolicyBinding:
					binding, _ := live.(*admissionv1.ValidatingAdmissionPolicyBinding)
					binding.Spec = *want.Spec.DeepCopy()
				}
				live.SetLabels(labels.Merge(live.GetLabels(), want.GetLabels()))
				if len(want.GetAnnotations()) > 0 {
					live.SetAnnotations(labels.Merge(live.GetAnnotations(), want.GetAnnotations()))
				}
				return nil
			})
			return err
		})
		if err != nil {
			return fmt.Errorf("install the policies for spaces' accounts on the host: %w", err)
		}
	}
	return nil
}

// AccountPolicy returns the policy that restricts what the spaces' accounts may write with [AccountRules]; see package
// hostpolicy. It covers neither pods nor shared objects.
func AccountPolicy() admissionv1.ValidatingAdmissionPolicySpec {
	return accountPolicy(func(resource string) bool { return !ofPods(resource) && resource != sharedObjects }, hostpolicy.Accounts())
}

// SharePolicy is like [AccountPolicy], for shared objects.
func SharePolicy() admissionv1.ValidatingAdmissionPolicySpec {
	return accountPolicy(func(resource string) bool { return resource == sharedObjects }, hostpolicy.SharedObjects())
}

// sharedObjects is the resource of what spaces share.
const sharedObjects = "sharedobjects"

// PodPolicy is like [AccountPolicy], for pods.
func PodPolicy() admissionv1.ValidatingAdmissionPolicySpec {
	return accountPolicy(ofPods, hostpolicy.Pods())
}

// RuntimePolicy returns the policy for pods that name a runtime class. Its binding must have [AllParams].
func RuntimePolicy() admissionv1.ValidatingAdmissionPolicySpec {
	policy := accountPolicy(func(resource string) bool { return resource == "pods" }, hostpolicy.Runtimes())
	policy.ParamKind = &admissionv1.ParamKind{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"}
	policy.MatchConditions = append(policy.MatchConditions, hostpolicy.NamesRuntime())
	return policy
}

// AllParams makes a host evaluate a policy for all runtime classes. If there are none, the host rejects a pod that
// names one before it evaluates policies.
func AllParams() *admissionv1.ParamRef {
	return &admissionv1.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: ptr.To(admissionv1.AllowAction)}
}

// ofPods reports whether a resource is pods, or one of their subresources.
func ofPods(resource string) bool { return resource == "pods" || strings.HasPrefix(resource, "pods/") }

// accountPolicy returns a policy about what the accounts write of some resources. It matches only namespaces of spaces,
// so that a mistake in it can't block anything else on the host. It rejects what it can't evaluate.
//
// A host needs almost a millisecond for each policy that matches an object, mostly to convert the object. So each
// resource is matched by exactly one.
func accountPolicy(resources func(name string) bool, policy hostpolicy.Policy) admissionv1.ValidatingAdmissionPolicySpec {
	return inSpaces(written(resources), policy)
}

// inSpaces returns a policy about what the accounts write in namespaces of spaces, of the resources that rules match.
func inSpaces(rules []admissionv1.NamedRuleWithOperations, policy hostpolicy.Policy) admissionv1.ValidatingAdmissionPolicySpec {
	return admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: ptr.To(admissionv1.Fail),
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: translate.LabelSpace, Operator: metav1.LabelSelectorOpExists}}},
			ResourceRules:     rules,
		},
		MatchConditions: hostpolicy.FromAccounts(),
		Variables:       policy.Variables,
		Validations:     policy.Validations,
	}
}

// written returns rules for those of the resources that the accounts have a right to write.
func written(resources func(name string) bool) (rules []admissionv1.NamedRuleWithOperations) {
	rights := AccountRules()
	for _, r := range optional() { // enabled or not, because the policy is the same for all
		rights = append(rights, writeRule(r))
	}
	for _, r := range rights {
		names := slices.DeleteFunc(slices.Clone(r.Resources), func(name string) bool { return !resources(name) })
		writes := slices.ContainsFunc(r.Verbs, func(v string) bool { return v == "update" || v == "patch" || v == "delete" })
		if !writes || len(names) == 0 {
			continue
		}
		version := "v1"
		if slices.Contains(r.APIGroups, translate.Domain) {
			version = "v1alpha1" // of SharedObjects
		}
		rules = append(rules, admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
			Rule: admissionv1.Rule{
				APIGroups: r.APIGroups, APIVersions: []string{version}, Resources: names, Scope: ptr.To(admissionv1.NamespacedScope),
			},
		}})
	}
	return rules
}
