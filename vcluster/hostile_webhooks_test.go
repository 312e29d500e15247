// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
)

// L3: each request is compared with all webhooks of its space, and calls those that validate it all at once.
func TestHostileASpaceHasNoMoreWebhooksThanAllowed(t *testing.T) {
	account, _, config := bounded(t, nil)
	client := clientset(t, config)
	configurations := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	create := func(i int) error {
		c := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}}
		for n := range 300 {
			c.Webhooks = append(c.Webhooks, admissionv1.ValidatingWebhook{
				Name: fmt.Sprintf("w%d.example.com", n), SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
				ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Name: "a", Namespace: "a"}},
				Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{"*"}, Rule: admissionv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1beta1"}, Resources: []string{"configmaps"}}}},
			})
		}
		_, err := configurations.Create(t.Context(), c, metav1.CreateOptions{})
		return err
	}
	made := 0
	var err error
	for ; err == nil && made < 10; made++ {
		err = create(made)
	}
	if made != 4 || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit schema-bytes") {
		t.Errorf("number %d of 300 webhooks each: %v", made, err)
	}
	eventually(t, func() error {
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m"}}, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "900 webhooks, at most 200 are possible") {
			return fmt.Errorf("a request that is for all of them: %w", err)
		}
		return nil
	})
	if _, err := client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("one that is for none: %v", err)
	}
	if err := configurations.Delete(t.Context(), "c0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := create(0); err != nil {
		t.Errorf("in the place of others: %v, with %d bytes used", err, account.Used(bounds.SchemaBytes))
	}
}
