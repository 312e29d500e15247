// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// N1, M4: a space's API server runs in Berth's process, in the midst of the
// admin's network. A tenant must not make it call whom the tenant likes.
func TestHostileAddressesAreNotCalled(t *testing.T) {
	t.Parallel()
	demo := sharedBerth(t).demo(t)
	ns := demo.namespace(t, "reach")
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var calls atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})

	url, none := fmt.Sprintf("https://%s/", listener.Addr()), admissionregistrationv1.SideEffectClassNone
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "curious.example.com"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "curious.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: &url},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}
	hooks := demo.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := hooks.Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// It is in force once it fails what it is asked about.
	count := 0
	eventually(t, func() error {
		count++
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("asked-", count)}}
		if _, err := demo.CoreV1().ConfigMaps(ns).Create(t.Context(), config, metav1.CreateOptions{}); err == nil {
			return fmt.Errorf("the webhook is not asked yet")
		}
		return nil
	})
	if err := hooks.Delete(t.Context(), hook.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := calls.Load(); n > 0 {
		t.Errorf("the API server called an address of this machine %d times", n)
	}
}
