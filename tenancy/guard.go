// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/kinds"
	"github.com/berth-dev/berth/translate"
)

// Names of what [Guard] makes.
const (
	accountGuard = "berth-space-accounts"
	podGuard     = "berth-space-pods"
	classGuard   = "berth-space-classes"
)

// Guard has the host hold all spaces' accounts to [PodPolicy] and [AccountPolicy],
// and to the [ClassPolicy] of these switches. It is repeatable; a host enforces it
// some moments later.
func Guard(ctx context.Context, host client.Client, switches kinds.Switches) error {
	// The pods' comes first: what an older Berth made is about pods, too, until
	// the other one takes its place.
	if err := guard(ctx, host, podGuard, PodPolicy()); err != nil {
		return err
	}
	if err := guard(ctx, host, accountGuard, AccountPolicy()); err != nil {
		return err
	}
	return guard(ctx, host, classGuard, ClassPolicy(switches))
}

func guard(ctx context.Context, host client.Client, name string, policy admissionv1.ValidatingAdmissionPolicySpec) error {
	at := metav1.ObjectMeta{Name: name, Labels: map[string]string{translate.LabelManagedBy: translate.ManagedBy}}
	for _, o := range []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{
			TypeMeta: kind("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"), ObjectMeta: at, Spec: policy,
		},
		&admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta: kind("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"), ObjectMeta: at,
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
		},
	} {
		//nolint:staticcheck // client.Apply wants generated apply configurations, which say the same at greater length
		if err := host.Patch(ctx, o, client.Apply, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
			return fmt.Errorf("guard what spaces' accounts write on the host: %w", err)
		}
	}
	return nil
}

// fromAccounts matches requests of spaces' accounts. Neither a namespace nor the
// name of a service account holds a colon.
func fromAccounts() []admissionv1.MatchCondition {
	return []admissionv1.MatchCondition{{
		Name:       "account",
		Expression: "request.userInfo.username.startsWith('system:serviceaccount:') && request.userInfo.username.endsWith(':" + syncer.ServiceAccount + "')",
	}}
}

// accountPolicy is a policy about what the accounts write of some resources. It
// is asked about namespaces of spaces only, so that a mistake in it could stop no
// other work of the host. Whatever it can't evaluate it refuses.
//
// A host takes the better part of a millisecond for each policy that an object
// meets, most of it to convert the object: each resource meets exactly one.
func accountPolicy(resources func(name string) bool, validations ...[]admissionv1.Validation) admissionv1.ValidatingAdmissionPolicySpec {
	return admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: ptr.To(admissionv1.Fail),
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: translate.LabelSpace, Operator: metav1.LabelSelectorOpExists}}},
			ResourceRules:     written(resources),
		},
		MatchConditions: fromAccounts(),
		Validations:     slices.Concat(validations...),
	}
}

// written are those of the resources that the accounts have a right to write.
func written(resources func(name string) bool) (rules []admissionv1.NamedRuleWithOperations) {
	rights := AccountRules()
	for _, r := range switchedRules() { // whether or not they are switched on: the policy is the same for all
		rights = append(rights, r.PolicyRule)
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

// whose keeps an account to what a syncer makes: never a wall, the accounts, or
// an object of the host's own. No name of these holds two dashes, and all names
// that are translated do; own are others that Berth makes.
func whose(own ...string) []admissionv1.Validation {
	ours := func(o string) string {
		name := o + ".metadata.name.contains('--')"
		if len(own) > 0 {
			name = "(" + name + " || (request.resource.resource + '/' + " + o + ".metadata.name) in " + quoted(own...) + ")"
		}
		return "(" + o + " == null || '" + translate.HostNamespacePrefix + "' + " + o + ".metadata.?labels['" + translate.LabelSpace + "'].orValue('') == request.namespace && " + name + ")"
	}
	return []admissionv1.Validation{
		refuse("a space's account may write in the space's namespace only",
			"request.userInfo.username == 'system:serviceaccount:' + request.namespace + ':"+syncer.ServiceAccount+"'"),
		refuse(notOurs+": nothing without the label "+translate.LabelSpace+
			", no wall, no account of Berth's", ours("object")+" && "+ours("oldObject")),
	}
}

// notOurs begins what the host answers to whoever would write anything else there.
const notOurs = "a space's account may write only what is made for the space's objects"

func refuse(message, unless string) admissionv1.Validation {
	return admissionv1.Validation{Expression: unless, Message: message, Reason: ptr.To(metav1.StatusReasonForbidden)}
}

// about is an expression that asks something of what is written of one resource.
func about(resource, expression string) string {
	return "request.resource.resource != '" + resource + "' || object == null || (" + expression + ")"
}

// kept is an expression that allows a field only as it is: to whoever else wrote
// it, if it is there at all.
func kept(field string) string {
	return "(!has(object." + field + ") || oldObject != null && has(oldObject." + field + ") && object." + field + " == oldObject." + field + ")"
}

// annotated is an expression that allows, of annotations k that are not kept,
// Berth's own and those that others says.
func annotated(others string) string {
	return "object.metadata.?annotations.orValue({}).all(k, k.startsWith('" + translate.Domain + "/') || " + others + " || " +
		"oldObject != null && k in oldObject.metadata.?annotations.orValue({}) && oldObject.metadata.annotations[k] == object.metadata.annotations[k])"
}

// quoted is a list of strings in CEL.
func quoted(all ...string) string { return "['" + strings.Join(all, "', '") + "']" }
