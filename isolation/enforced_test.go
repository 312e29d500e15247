// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// M4: a host that does not enforce the policies, or not all of them, is not taken for
// one that does; asking leaves nothing behind.
func TestAHostThatDoesNotEnforceThePoliciesIsDetected(t *testing.T) {
	config, ctx := startCluster(t), t.Context()
	admin, space := clientOf(t, config), translate.Space{Name: "mine"}
	if err := isolation.Apply(ctx, admin, space, nil); err != nil {
		t.Fatal(err)
	}
	account := clientOf(t, syncer.AsAccount(config, space))
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: space.HostNamespace(), Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	enforced := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return isolation.WaitEnforced(ctx, account, space)
	}
	if err := enforced(time.Second); err == nil || !strings.Contains(err.Error(), "does not enforce") {
		t.Errorf("without a policy: %v", err)
	}
	// Another policy of the host's, by which it is refused, too, says nothing.
	others := metav1.ObjectMeta{Name: "others"}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: others, Spec: isolation.AccountPolicy()}
	policy.Spec.MatchConstraints.ResourceRules = append(policy.Spec.MatchConstraints.ResourceRules, isolation.PodPolicy().MatchConstraints.ResourceRules...)
	policy.Spec.Validations = []admissionv1.Validation{{Expression: "false", Message: "it names no team", Reason: ptr.To(metav1.StatusReasonForbidden)}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: others, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: others.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	for _, o := range []client.Object{policy, binding} {
		if err := admin.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return apierrors.IsForbidden(account.Create(ctx, probe.DeepCopy(), client.DryRunAll)), nil
	}); err != nil {
		t.Fatal("the other policy is not in force")
	}
	if err := enforced(time.Second); err == nil || !strings.Contains(err.Error(), "no team") {
		t.Errorf("with another's policy: %v", err)
	}
	if err := admin.Delete(ctx, binding); err != nil {
		t.Fatal(err)
	}
	if err := isolation.InstallPolicies(ctx, admin, resources.SyncOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := enforced(time.Minute); err != nil {
		t.Error(err)
	}
	if err := admin.Delete(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "berth-space-pods"}}); err != nil {
		t.Fatal(err)
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return account.Create(ctx, probe.DeepCopy(), client.DryRunAll) == nil, nil // once the host has taken it up
	})
	if err != nil {
		t.Fatal("the policy is enforced without its binding")
	}
	if err := enforced(time.Second); err == nil || !strings.Contains(err.Error(), "v1.Pod") {
		t.Errorf("without the policy about pods: %v", err)
	}
	for _, left := range []client.Object{&corev1.Pod{}, &corev1.ConfigMap{}} {
		if err := admin.Get(ctx, client.ObjectKey{Namespace: space.HostNamespace(), Name: "berth-probe"}, left); !apierrors.IsNotFound(err) {
			t.Errorf("a %T is left (%v)", left, err)
		}
	}
}
