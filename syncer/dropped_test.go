// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/internal/testhost"
)

// S4: a tenant hears which fields of its pod the host left out. This host's
// admission does so, as the API of an older one would.
func TestATenantHearsWhatTheHostDidNotTakeOfItsPod(t *testing.T) {
	t.Parallel()
	env := synced(t, "dropped")
	meta := metav1.ObjectMeta{Name: "drops-" + env.space.Name}
	policies := env.host.AdmissionregistrationV1()
	must(t, policies.MutatingAdmissionPolicies().Create, &admissionv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicySpec{
		ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		FailurePolicy:      ptr.To(admissionv1.Fail),
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: env.space.HostNamespace()}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}},
		},
		Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{
			Expression: "has(object.spec.hostnameOverride) ? [JSONPatch{op: 'remove', path: '/spec/hostnameOverride'}] : []",
		}}},
	}})
	must(t, policies.MutatingAdmissionPolicyBindings().Create, &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name},
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testhost.Timeout)
		defer cancel()
		err := policies.MutatingAdmissionPolicyBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{})
		if err := errors.Join(err, policies.MutatingAdmissionPolicies().Delete(ctx, meta.Name, metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			HostnameOverride: ptr.To("own"), Containers: []corev1.Container{{Name: "c", Image: "i"}},
		}}
	}
	testhost.Eventually(t, "have the policy in force", func(ctx context.Context) error {
		tried, err := env.host.CoreV1().Pods(env.space.HostNamespace()).Create(ctx, pod("tried"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && tried.Spec.HostnameOverride != nil {
			return errors.New("it is not yet")
		}
		return err
	})

	must(t, env.virtual.CoreV1().Pods("default").Create, pod("named"))
	env.awaitWarning(t, "Pod", "named", "the host's Kubernetes version dropped spec.hostnameOverride")
	awaited(t, "have the pod run without", env.virtual.CoreV1().Pods("default").Get, "named", func(v *corev1.Pod) error {
		if v.Status.Phase != corev1.PodRunning {
			return errors.New("it does not run")
		}
		return nil
	})
}
