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
	classGuard   = "berth-space-classes"
)

// Guard has the host hold all spaces' accounts to [AccountPolicy], and to the
// [ClassPolicy] of these switches. It is repeatable; a host enforces it some
// moments later.
func Guard(ctx context.Context, host client.Client, switches kinds.Switches) error {
	if err := guard(ctx, host, accountGuard, AccountPolicy()); err != nil {
		return err
	}
	if policy, ok := ClassPolicy(switches); ok {
		return guard(ctx, host, classGuard, policy)
	}
	return nil
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

// fromAccounts matches requests of spaces' accounts.
func fromAccounts() []admissionv1.MatchCondition {
	return []admissionv1.MatchCondition{{
		Name: "account", Expression: "request.userInfo.username.matches('^system:serviceaccount:[^:]+:" + syncer.ServiceAccount + "$')",
	}}
}

// AccountPolicy is what the host holds the spaces' accounts to beyond
// [AccountRules]: RBAC grants kinds, and can't tell a tenant's network policy
// from a wall, nor one field of a status from another. It is for whoever holds
// such an account, and so trusts nothing that Berth does before it writes.
//
// It is asked about namespaces of spaces only, so that a mistake in it could
// stop no other work of the host. Whatever it can't evaluate it refuses.
func AccountPolicy() admissionv1.ValidatingAdmissionPolicySpec {
	return admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: ptr.To(admissionv1.Fail),
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: translate.LabelSpace, Operator: metav1.LabelSelectorOpExists}}},
			ResourceRules:     written(),
		},
		MatchConditions: fromAccounts(),
		Variables: []admissionv1.Variable{
			{Name: "kind", Expression: "request.resource.resource"},
			{Name: "status", Expression: "has(request.subResource) && request.subResource == 'status'"},
			{Name: "peers", Expression: "variables.kind != 'networkpolicies' || object == null ? [] : " +
				"object.spec.?ingress.orValue([]).map(r, r.?from.orValue([])) + object.spec.?egress.orValue([]).map(r, r.?to.orValue([]))"},
			{Name: "gates", Expression: "!variables.status ? [] : " +
				"oldObject.spec.?readinessGates.orValue([]).map(g, g.conditionType).filter(t, t.startsWith('" + translate.GatePrefix + "'))"},
		},
		Validations: slices.Concat(whose(), status(), openings(), identities()),
	}
}

// written are the resources that the accounts have a right to write.
func written() (rules []admissionv1.NamedRuleWithOperations) {
	for _, r := range append(AccountRules(), snapshotRule()) {
		if !slices.ContainsFunc(r.Verbs, func(v string) bool { return v == "update" || v == "patch" || v == "delete" }) {
			continue
		}
		rules = append(rules, admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
			Rule: admissionv1.Rule{
				APIGroups: r.APIGroups, APIVersions: []string{"v1"}, Resources: r.Resources, Scope: ptr.To(admissionv1.NamespacedScope),
			},
		}})
	}
	return rules
}

// whose keeps an account to what a syncer makes: never a wall, the accounts, or
// an object of the host's own. No name of these holds two dashes, and all names
// that are translated do.
func whose() []admissionv1.Validation {
	own := quoted("services/"+translate.DNSServiceName, "endpointslices/"+translate.DNSServiceName, "endpointslices/"+translate.APIEndpointsName)
	return []admissionv1.Validation{
		refuse("a space's account may write in the space's namespace only",
			"request.userInfo.username == 'system:serviceaccount:' + request.namespace + ':"+syncer.ServiceAccount+"'"),
		refuse("a space's account may write only what is made for the space's objects: nothing without the label "+translate.LabelSpace+
			", no wall, no account of Berth's",
			"[object, oldObject].all(o, o == null || "+
				"'"+translate.HostNamespacePrefix+"' + o.metadata.?labels['"+translate.LabelSpace+"'].orValue('') == request.namespace && "+
				"(o.metadata.name.contains('--') || (variables.kind + '/' + o.metadata.name) in "+own+"))"),
	}
}

// status keeps an account to the answers to readiness gates: by the addresses in
// a pod's status, Berth knows whose a caller is.
func status() []admissionv1.Validation {
	return []admissionv1.Validation{
		refuse("a space's account may change only conditions in the status of a pod", "!variables.status || "+
			"dyn(object.status).all(f, f == 'conditions' || f in oldObject.status && object.status[f] == oldObject.status[f]) && "+
			"dyn(oldObject.status).all(f, f == 'conditions' || f in object.status)"),
		refuse("a space's account may set only the conditions of readiness gates that are Berth's", "!variables.status || "+
			"object.status.?conditions.orValue([]).all(c, c.type in variables.gates || c in oldObject.status.?conditions.orValue([])) && "+
			"oldObject.status.?conditions.orValue([]).all(c, c.type in variables.gates || c in object.status.?conditions.orValue([]))"),
	}
}

// openings keeps network policies, which add up, to what the walls let through
// (see translate.Everyone), and services to the space's own pods and addresses.
func openings() []admissionv1.Validation {
	var closed []string
	for _, block := range translate.Outside() {
		closed = append(closed, block.Except...)
	}
	return []admissionv1.Validation{
		refuse("a space's network policies may allow its own pods and public addresses only, and say whom they allow",
			"variables.peers.all(peers, size(peers) > 0 && peers.all(p, !has(p.namespaceSelector) && has(p.podSelector) != has(p.ipBlock) && "+
				"(!has(p.ipBlock) || "+quoted(closed...)+".all(c, !cidr(c).containsCIDR(p.ipBlock.cidr) && "+
				"(!cidr(p.ipBlock.cidr).containsCIDR(c) || p.ipBlock.?except.orValue([]).exists(e, cidr(e).containsCIDR(c)))))))"),
		refuse("a space's services may not claim addresses of the network, and those that are reached from outside need a selector",
			"variables.kind != 'services' || object == null || size(object.spec.?externalIPs.orValue([])) == 0 && "+
				"(!(object.spec.?type.orValue('') in ['NodePort', 'LoadBalancer']) || size(object.spec.?selector.orValue({})) > 0)"),
	}
}

// identities keeps an account from lasting longer, or becoming more, than what
// Berth poses as.
func identities() []admissionv1.Validation {
	return []admissionv1.Validation{
		refuse("a space's volume snapshots may be of its own claims only",
			"variables.kind != 'volumesnapshots' || object == null || !has(object.spec.source.volumeSnapshotContentName)"),
		refuse("a space's secrets may hold no token of a host's service account",
			"variables.kind != 'secrets' || object == null || object.?type.orValue('') != 'kubernetes.io/service-account-token'"),
		refuse("a space's service accounts may get no annotation but Berth's: the host may take one for the right to an identity",
			"variables.kind != 'serviceaccounts' || object == null || object.metadata.?annotations.orValue({}).all(k, k.startsWith('"+translate.Domain+"/') || "+
				"oldObject != null && k in oldObject.metadata.?annotations.orValue({}) && oldObject.metadata.annotations[k] == object.metadata.annotations[k])"),
		refuse("a space's pods may choose neither their node nor a priority of the system's, nor run as Berth",
			"variables.kind != 'pods' || request.operation != 'CREATE' || !has(object.spec.nodeName) && "+
				"!object.spec.?priorityClassName.orValue('').startsWith('system-') && "+
				"(object.spec.?serviceAccountName.orValue('default') == 'default' || object.spec.serviceAccountName.contains('--'))"),
	}
}

func refuse(message, unless string) admissionv1.Validation {
	return admissionv1.Validation{Expression: unless, Message: message, Reason: ptr.To(metav1.StatusReasonForbidden)}
}

// quoted is a list of strings in CEL.
func quoted(all ...string) string { return "['" + strings.Join(all, "', '") + "']" }
